"use strict";
// The page asks, and shows what it is told. What a packed launch does, it works out itself (run.js); all else was worked
// out elsewhere, by gpusim or beforehand.
(() => {
  const form = document.getElementById("ask");
  if (!form) return;
  const page = form.dataset.page;
  const copied = form.dataset.answers; // where a static copy has its answers
  const byId = (id) => document.getElementById(id);
  const result = byId("result"), answer = byId("answer"), status = byId("status"), refusal = byId("refusal");
  const compare = byId("compare");
  const fields = Array.from(form.elements).filter((item) => item.name && item.name !== "plain");
  const title = document.title;
  const { number, fill: fillTable } = gpusim.draw;
  const ranges = fields.filter((item) => item.type === "range");
  const sliders = ranges.filter((item) => !("asked" in item.dataset)); // the page moves them by itself
  const launches = new Map(); // launches that the page runs, by the question without sliders
  const MOST_LAUNCHES = 16;
  let last = null; // the answer that is shown: its label and figures
  let drawn = null; // what its HTML was told with
  let asked = null; // the query that is under way
  let wanted = null; // one that came meanwhile
  let timer = 0;

  // ------------------------------------------------------------------ the form and the address

  const valueOf = (name) => form.elements[name].value;

  function showFields() {
    for (const box of form.querySelectorAll("[data-when]")) {
      box.hidden = valueOf(box.dataset.when) !== box.dataset.value;
    }
    for (const range of ranges) range.nextElementSibling.value = range.value;
  }

  function words(asked = fields) {
    const found = new URLSearchParams();
    for (const field of asked) {
      const isSaid = !field.disabled && !field.closest(".field").hidden;
      if (isSaid && field.value.trim() !== field.dataset.default) found.set(field.name, field.value.trim());
    }
    return found;
  }

  function fill(query) {
    const missing = [];
    for (const field of fields) {
      const value = query.has(field.name) ? query.get(field.name) : field.dataset.default;
      const before = field.value;
      field.value = value;
      const option = field.tagName === "SELECT" ? field.selectedOptions[0] : null;
      const isStop = !ranges.includes(field) || Number(field.value) === Number(value);
      const isThere = field.tagName === "SELECT" ? option && !option.disabled : isStop;
      if (!isThere || (field.disabled && value !== field.dataset.default)) {
        missing.push(`${field.labels[0].textContent} ${value}`);
        field.value = field.dataset.default || before;
      }
    }
    showFields();
    return missing;
  }

  function remember(query, isNew) {
    const address = query.toString() ? `?${query}` : location.pathname.split("/").pop() || `${page}.html`;
    try {
      if (isNew) history.pushState(null, "", address);
      else history.replaceState(null, "", address);
    } catch (error) {
      // a browser may keep the address of a local file as it is
    }
  }

  // ------------------------------------------------------------------ asking

  async function fetched(query) {
    const reply = await fetch(`api/${page}?${query}`, { headers: { Accept: "application/json" } });
    return reply.json();
  }

  const waiting = new Map();
  window.gpusimAnswer = (key, told) => {
    if (waiting.has(key)) waiting.get(key)(told);
  };

  function stored() {
    const key = fields.filter((field) => "key" in field.dataset).map((field) => field.value).join("~");
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      waiting.set(key, resolve);
      script.src = `${copied}/${encodeURIComponent(key)}.js`;
      script.onerror = () => reject(new Error(`this copy has no file ${script.src}`));
      script.onload = () => script.remove();
      document.head.append(script);
    });
  }

  // What is known without a run: kept where the page runs the rest, so that sliders ask nobody.
  async function told() {
    const query = words(fields.filter((field) => !sliders.includes(field))).toString();
    if (launches.has(query)) return launches.get(query);
    try {
      const found = await (copied ? stored() : fetched(query));
      if (found.launch) launches.set(query, found);
      if (launches.size > MOST_LAUNCHES) launches.delete(launches.keys().next().value);
      return found;
    } catch (error) {
      const dead = "gpusim does not answer; is it still running where it was started?";
      return { refusal: copied ? error.message : dead, field: "" };
    }
  }

  async function ask(missing = "") {
    const query = words();
    if (asked !== null) {
      wanted = query;
      return;
    }
    asked = query;
    const began = Date.now();
    let share = "";
    const tick = setInterval(() => {
      const seconds = Math.round((Date.now() - began) / 1000);
      status.textContent = seconds < 3 ? "Computing …" : `Computing, ${seconds - seconds % 3} s${share} …`;
    }, 300);
    result.setAttribute("aria-busy", "true");
    let found = await told(), run = null;
    if (found.launch && wanted === null) {
      const factors = Object.fromEntries(sliders.map((slider) => [slider.name, slider.value]));
      const tell = (numExited) => { share = `, ${Math.floor(100 * numExited / found.launch.num_ctas)} % of the CTAs`; };
      try {
        run = await gpusim.pipeline.run(found, factors, () => wanted === null, tell);
      } catch (error) {
        found = { refusal: `the page cannot run the launch: ${error.message}`, field: "" };
      }
    }
    clearInterval(tick);
    result.removeAttribute("aria-busy");
    asked = null;
    if (wanted !== null) {
      wanted = null;
      ask();
    } else {
      show(found, run);
      if (missing && !found.refusal) {
        refusal.hidden = false;
        refusal.textContent = missing;
      }
    }
  }

  // ------------------------------------------------------------------ showing

  function show(told, run) {
    for (const field of fields) field.removeAttribute("aria-invalid");
    refusal.hidden = !told.refusal;
    refusal.textContent = told.refusal || "";
    result.classList.toggle("old", Boolean(told.refusal) && last !== null);
    if (told.refusal) {
      const field = told.field && form.elements[told.field];
      if (field) field.setAttribute("aria-invalid", "true");
      status.textContent = last === null ? "No answer: see what is refused beside the form." : "No answer: see what is refused; below is the answer before it.";
      return;
    }
    if (drawn !== told) answer.innerHTML = told.html;
    drawn = told;
    if (run) gpusim.pipeline.show(answer, told, run);
    const { label, figures } = run ?? told, first = figures[0];
    document.title = `${number(first.value, first.digits)} ${first.unit || first.label}, ${title}`;
    status.textContent = `Answered: ${number(first.value, first.digits)} ${first.unit || first.label}.`;
    if (run) {
      const events = number(figures[2].value);
      status.textContent += ` The engine's module ran in this page: ${events} events in ${number(run.ms)} ms.`;
    }
    if (last !== null && last.label !== label) drawComparison(last, { label, figures });
    last = { label, figures };
  }

  function difference(before, now, digits) {
    if (before === now) return "same";
    const percent = before ? ` (${now > before ? "+" : "−"}${Math.abs(100 * (now / before - 1)).toFixed(1)} %)` : "";
    return `${now > before ? "+" : "−"}${number(Math.abs(now - before), digits)}${percent}`;
  }

  function drawComparison(before, now) {
    const rows = now.figures.map((figure, at) => {
      const old = before.figures[at].value;
      const unit = figure.unit ? `, ${figure.unit}` : "";
      return [`${figure.label}${unit}`, number(old, figure.digits), number(figure.value, figure.digits), difference(old, figure.value, figure.digits)];
    });
    const table = document.createElement("table");
    table.createCaption().textContent = `Compared with the last answer (${before.label})`;
    fillTable(table, ["", "last", "now", "difference"], rows);
    compare.replaceChildren(table);
    compare.className = "scroll";
    compare.hidden = false;
    status.textContent += ` ${rows[0][0]} before: ${rows[0][1]}, difference ${rows[0][3]}.`;
  }

  // ------------------------------------------------------------------ events

  function changed(isNew) {
    clearTimeout(timer);
    showFields();
    const query = words();
    if (query.toString() !== new URLSearchParams(location.search).toString()) remember(query, isNew);
    ask();
  }

  let typed = false; // the address is pushed once for a word, not for each letter of it
  form.addEventListener("input", (event) => {
    if (event.target.tagName === "SELECT") return;
    clearTimeout(timer);
    const change = () => { changed(!typed); typed = true; };
    if (ranges.includes(event.target)) change();
    else timer = setTimeout(change, 600);
  });
  form.addEventListener("change", (event) => {
    const isText = event.target.tagName !== "SELECT";
    changed(!(isText && typed));
    typed = false;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    changed(true);
  });
  window.addEventListener("popstate", () => {
    fill(new URLSearchParams(location.search));
    ask();
  });
  document.addEventListener("click", async (event) => {
    const offer = event.target.closest("a.offer");
    if (offer && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      take(new URL(offer.href).searchParams, true);
      result.focus({ preventScroll: true });
    }
    const button = event.target.closest("button[data-copy]");
    if (button) {
      const code = byId(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch (error) {
        getSelection().selectAllChildren(code);
        button.textContent = "Marked: press Ctrl-C";
      }
    }
  });

  function take(query, isNew) {
    const missing = fill(query);
    remember(words(), isNew);
    ask(missing.length ? `${copied ? "this static copy has no" : "there is no"} ${missing.join(", no ")}; its default is shown` : "");
  }

  take(new URLSearchParams(location.search), false);
})();
