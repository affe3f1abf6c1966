"use strict";
// The page asks, and shows what it is told: all answers are worked out elsewhere, by gpusim or beforehand.
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
  let last = null; // the answer that is shown: its label and figures
  let asked = null; // the query that is under way
  let wanted = null; // one that came meanwhile
  let timer = 0;

  // ------------------------------------------------------------------ the form and the address

  const valueOf = (name) => form.elements[name].value;

  function showFields() {
    for (const box of form.querySelectorAll("[data-when]")) {
      box.hidden = valueOf(box.dataset.when) !== box.dataset.value;
    }
  }

  function words() {
    const found = new URLSearchParams();
    for (const field of fields) {
      const box = field.closest(".field");
      if (!field.disabled && !box.hidden && field.value.trim() !== field.dataset.default) found.set(field.name, field.value.trim());
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
      const isThere = field.tagName !== "SELECT" || (option && !option.disabled);
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

  async function ask(missing = "") {
    const query = words();
    if (asked !== null) {
      wanted = query;
      return;
    }
    asked = query;
    const began = Date.now();
    const tick = setInterval(() => {
      const seconds = Math.round((Date.now() - began) / 1000);
      status.textContent = seconds < 3 ? "Computing …" : `Computing, ${seconds - seconds % 3} s …`;
    }, 300);
    result.setAttribute("aria-busy", "true");
    let told;
    try {
      told = await (copied ? stored() : fetched(query));
    } catch (error) {
      told = { refusal: copied ? error.message : "gpusim does not answer; is it still running where it was started?", field: "" };
    }
    clearInterval(tick);
    result.removeAttribute("aria-busy");
    asked = null;
    if (wanted !== null) {
      wanted = null;
      ask();
    } else {
      show(told);
      if (missing && !told.refusal) {
        refusal.hidden = false;
        refusal.textContent = missing;
      }
    }
  }

  // ------------------------------------------------------------------ showing

  function show(told) {
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
    answer.innerHTML = told.html;
    const first = told.figures[0];
    document.title = `${number(first.value, first.digits)} ${first.unit || first.label}, ${title}`;
    status.textContent = `Answered: ${number(first.value, first.digits)} ${first.unit || first.label}.`;
    if (last !== null && last.label !== told.label) drawComparison(last, told);
    last = told;
  }

  const number = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

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
    const head = table.createTHead().insertRow();
    for (const [at, text] of ["", "last", "now", "difference"].entries()) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      if (at) cell.className = "number";
      head.append(cell);
    }
    const body = table.createTBody();
    for (const row of rows) {
      const line = body.insertRow();
      for (const [at, text] of row.entries()) {
        const cell = document.createElement(at ? "td" : "th");
        if (at) cell.className = "number";
        else cell.scope = "row";
        cell.textContent = text;
        line.append(cell);
      }
    }
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
    timer = setTimeout(() => { changed(!typed); typed = true; }, 600);
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
