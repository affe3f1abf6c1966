"use strict";
// Runs the launch of a pipeline's question, and writes what the run has told into its answer.
(globalThis.gpusim ??= {}).pipeline = (() => {
  const { states, busy: subjects, times: names, computes, waits, sentences, math, work, limits, records } = gpusim.engine;
  const { number, fill } = gpusim.draw;

  const percent = (share) => (share > 0 && share < 0.0005 ? "<0.1 %" : `${(100 * share).toFixed(1)} %`);
  const sum = (values) => values.reduce((total, value) => total + value, 0);

  // What a run with sliders at `factors` has told; null where `goesOn()` says that nobody waits for it any more.
  async function run(question, factors, goesOn, tell) {
    const { launch } = question, began = performance.now();
    const found = await gpusim.run.results(launch, factors, goesOn, tell);
    if (!found) return null;
    const { end_cycle: cycles, num_events } = found.told.named("totals");
    const timeUs = cycles / launch.clock_mhz, tflops = launch.num_flops / (timeUs || Infinity) / 1e6;
    const ofPeak = launch.peak_tflops ? 100 * tflops / launch.peak_tflops : 0;
    const values = [cycles, timeUs / 1e3, num_events, tflops, ofPeak];
    const moved = Object.entries(launch.sliders).filter(([name]) => factors[name] !== "1");
    return {
      ...found, timeUs, ms: performance.now() - began, isMoved: moved.length > 0,
      label: question.label + moved.map(([name, { word }]) => `, ${factors[name]} x ${word}`).join(""),
      figures: question.figures.map((figure, at) => ({ ...figure, value: values[at] })),
    };
  }

  // Share of the kernel's cycles in which each part was busy, the busiest first; formulas as in simulate/bottleneck.py.
  function busyShares(launch, given, told) {
    const { end_cycle: cycles, link_busy_cycles } = told.named("totals"), ofAll = cycles * launch.num_sms;
    const counted = told.named("counters"), planned = launch.planned_dram_bytes;
    const { sm_read_bytes_per_cycle } = given.named("constants_xbar");
    const { wire_bytes_per_cycle, write_cost } = given.named("constants_hbm");
    const slices = sum(given.rows("partitions").map((row) => row.slices_bytes_per_cycle));
    const [asked, carried, read, written] = ["asked", "carried", "read", "write"].map((way) => counted[`xbar.${way}_bytes`]);
    const fromHbm = planned ? planned[0] + counted["l2.unplanned_miss_bytes"] : counted["hbm.read_bytes"];
    const toHbm = planned ? planned[1] : counted["hbm.write_bytes"];
    const shares = {
      tensor: counted["tensor_core.busy_cycles"] / ofAll, sm_intake: read / (sm_read_bytes_per_cycle * ofAll),
      l2: asked ? read * carried / asked / (slices * cycles) : 0, l2_link: link_busy_cycles / cycles,
      store: written / (slices * cycles),
      hbm: (fromHbm + toHbm * write_cost) / (wire_bytes_per_cycle * cycles),
    };
    const names = records.numbers.sm_totals, ofSms = told.numbers("sm_totals");
    for (const part of Object.keys(subjects)) {
      const column = names.indexOf(`${part}_busy_cycles`);
      if (column >= 0) shares[part] = sum(ofSms.filter((_, at) => at % names.length === column)) / ofAll;
    }
    return Object.entries(shares).map(([part, share]) => [part, Math.min(1, share)]).sort((a, b) => b[1] - a[1]);
  }

  // For each role the share of its life in each state.
  function stateShares(launch, told) {
    const cycles = told.numbers("role_totals");
    return launch.roles.map((_, role) => {
      const own = cycles.slice(role * states.length, (role + 1) * states.length), life = sum(own) || 1;
      return own.map((spent) => spent / life);
    });
  }

  // Shares of the time, and the shares that parts are busy of the main loop: as in simulate/bottleneck.py.
  function timeShares(launch, told, busy) {
    const { end_cycle: cycles, fill_cycles } = told.named("totals"), { fixed } = launch;
    const columns = records.numbers.sm_totals, active = columns.indexOf("active_cycles");
    const ofSms = told.numbers("sm_totals").filter((_, at) => at % columns.length === active);
    const held = sum(ofSms) / (cycles * launch.num_sms);
    const start = fixed.start_cycles / cycles, ends = fixed.ends_cycles / cycles;
    const times = { launch: Math.min(1, ends + start), fill: 0, main_loop: 0, epilogue: 0, tail: 0 };
    times.tail = Math.max(0, 1 - Math.max(times.launch, ends + held));
    const runs = 1 - times.launch - times.tail;
    if (fixed.has_main_loop) {
      const lives = launch.roles.map((_, role) => sum(cyclesOf(told, role)));
      const epilogues = told.numbers("epilogue_cycles"), have = (_, role) => epilogues[role] >= 0;
      const lived = sum(lives.filter(have)), spent = sum([...epilogues].filter(have));
      times.fill = Math.max(0, fill_cycles / (Math.max(...lives) || 1) * (runs + start) - start);
      times.epilogue = fixed.hides_epilogue || !lived ? 0 : spent / lived * runs;
      const most = Math.max(0, runs - Math.max(...math.map((part) => busy[part] ?? 0)));
      const beside = times.fill + times.epilogue;
      if (beside > most) for (const name of ["fill", "epilogue"]) times[name] *= most / beside;
    }
    times.main_loop = runs - times.fill - times.epilogue;
    const within = times.fill + times.main_loop + times.epilogue || 1;
    const of = (part) => (math.includes(part) ? times.main_loop : within) || 1;
    const shares = Object.fromEntries(Object.entries(busy).map(([part, share]) => [part, Math.min(1, share / of(part))]));
    return { times, shares };
  }

  const cyclesOf = (told, role) => [...told.numbers("role_totals").slice(role * states.length, (role + 1) * states.length)];
  const largest = (names, value) => names.reduce((best, name) => (value(name) > value(best) ? name : best));
  const percents = (share) => `${(100 * share).toFixed(1)}%`;
  const said = (name, words) => sentences[name].replace(/{(\w+)}/g, (_, word) => words[word]);

  // What bounds the kernel, in a word and a sentence: as in simulate/bottleneck.py.
  function boundBy(launch, told, { times, shares }) {
    const { fixed } = launch;
    const [word, text] = named(launch, told, times, shares);
    const listed = Object.keys(names).filter((name) => times[name] >= limits.listed).sort((a, b) => times[b] - times[a]);
    const label = (name) => (name === "main_loop" && !fixed.has_main_loop ? work : names[name]);
    const list = listed.map((name) => `${label(name)} ${percents(times[name])}`).join(", ");
    return `bound by ${word}: ${said("times", { text, times: list })}`;
  }

  function named(launch, told, times, shares) {
    const { fixed, roles } = launch;
    const most = largest(["main_loop", ...Object.keys(names)], (name) => times[name]);
    if (most !== "main_loop") {
      return [most, said(most, { share: percents(times[most]), waves: fixed.waves.toFixed(2) })];
    }
    let part = largest(Object.keys(shares).filter((name) => name !== "l2_link"), (name) => shares[name]);
    if (shares.l2_link >= Math.max(limits.saturated, shares[part] + limits.notable)) part = "l2_link";
    const ofPart = { part: subjects[part], busy: percents(shares[part]) };
    const leader = said(fixed.has_main_loop ? "loop" : "run", { ...ofPart, share: percents(times.main_loop) });
    if (shares[part] >= limits.saturated) return [part, leader];
    const spent = roles.map((_, role) => cyclesOf(told, role));
    const [worker] = order(spent);
    const life = sum(spent[worker]) || 1;
    const share = (name) => sum(waits[name].map((state) => spent[worker][state])) / life;
    const word = largest(Object.keys(waits), share), ofMath = largest(math, (name) => shares[name] ?? 0);
    const idle = 1 - (shares[ofMath] ?? 0);
    if (Math.min(share(word), idle) < limits.notable) return [part, said("nothing", { text: leader })];
    const wait = said(word, { role: roles[worker] });
    if (fixed.has_main_loop) return [word, said("idle", { wait, part: subjects[ofMath], idle: percents(idle) })];
    return [word, said("life", { ...ofPart, wait, share: percents(share(word)) })];
  }

  // Roles, the one that computes most first.
  const order = (spent) => [...spent.keys()].sort((a, b) => {
    const state = computes.find((one) => spent[a][one] !== spent[b][one]);
    return state === undefined ? a - b : spent[b][state] - spent[a][state];
  });

  function verdict(launch, { timeUs, figures, told }, busy) {
    const [, , , tflops, ofPeak] = figures.map((figure) => number(figure.value, figure.digits));
    const speed = launch.peak_tflops ? ` at ${tflops} TFLOP/s (${ofPeak} % of peak at this clock)` : "";
    const time = timeUs < 1000 ? `${number(timeUs, 2)} us` : `${number(timeUs / 1000, 2)} ms`;
    const bound = boundBy(launch, told, timeShares(launch, told, Object.fromEntries(busy)));
    return `${launch.kernel} on ${launch.gpu} takes ${time}${speed}, ${bound}.`;
  }

  function fillTables([ofStates, ofBusy], { roles, least_share }, shares, busy) {
    const rows = states.map(({ name }, state) => ({ name, own: shares.map((ofRole) => ofRole[state]) }))
      .filter(({ own }) => Math.max(...own) >= least_share)
      .sort((a, b) => Math.max(...b.own) - Math.max(...a.own));
    const texts = rows.map(({ name, own }) => [name, ...own.map((share) => (share ? percent(share) : "-"))]);
    fill(ofStates, ["state", ...roles], texts);
    const shown = busy.filter(([, share]) => share >= least_share);
    fill(ofBusy, ["part", "share"], shown.map(([part, share]) => [part, percent(share)]));
  }

  // Writes what a run has told into the answer in `box`.
  function show(box, { launch }, run) {
    const busy = busyShares(launch, run.given, run.told), shares = stateShares(launch, run.told);
    box.querySelector(".verdict").textContent = verdict(launch, run, busy);
    box.querySelectorAll(".figures dd").forEach((cell, at) => {
      const { value, unit, digits } = run.figures[at];
      cell.dataset.value = value; // all digits
      cell.firstChild.textContent = number(value, digits) + (unit && " ");
    });
    box.querySelector("#moved").hidden = !run.isMoved;
    box.querySelector("#expected").hidden = run.isMoved;
    fillTables(box.querySelectorAll(".tables table"), launch, shares, busy);
    box.querySelector("#pictures").replaceChildren(...gpusim.timeline.pictures(launch, run.told));
  }

  return { run, show };
})();
