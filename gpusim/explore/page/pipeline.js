"use strict";
// Runs the launch of a pipeline's question, and writes what the run has told into its answer.
(globalThis.gpusim ??= {}).pipeline = (() => {
  const { states, busy: subjects, computes, waits, records } = gpusim.engine;
  const { number, fill } = gpusim.draw;

  const percent = (share) => `${(100 * share).toFixed(1)} %`;
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
    const { sm_read_bytes_per_cycle, write_bytes_per_cycle } = given.named("constants_xbar");
    const { wire_bytes_per_cycle, write_cost } = given.named("constants_hbm");
    const slices = sum(given.rows("partitions").map((row) => row.slices_bytes_per_cycle));
    const [asked, carried, read, written] = ["asked", "carried", "read", "write"].map((way) => counted[`xbar.${way}_bytes`]);
    const fromHbm = planned ? planned[0] + counted["l2.unplanned_miss_bytes"] : counted["hbm.read_bytes"];
    const toHbm = planned ? planned[1] : counted["hbm.write_bytes"];
    const shares = {
      tensor: counted["tensor_core.busy_cycles"] / ofAll, sm_intake: read / (sm_read_bytes_per_cycle * ofAll),
      l2: asked ? read * carried / asked / (slices * cycles) : 0, l2_link: link_busy_cycles / cycles,
      store: written / (write_bytes_per_cycle * cycles),
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

  // What the role that computes most waits in for most of its life, in words.
  function longestWait(launch, shares) {
    const [worker] = [...shares.keys()].sort((a, b) => {
      const state = computes.find((one) => shares[a][one] !== shares[b][one]);
      return state === undefined ? a - b : shares[b][state] - shares[a][state];
    });
    const [state] = [...waits].sort((a, b) => shares[worker][b] - shares[worker][a]);
    return `role '${launch.roles[worker]}' waits ${percent(shares[worker][state])} of its life in ${states[state].name}`;
  }

  function verdict(launch, { timeUs, figures }, [[part, share]], shares) {
    const [, , , tflops, ofPeak] = figures.map((figure) => number(figure.value, figure.digits));
    const speed = launch.peak_tflops ? ` at ${tflops} TFLOP/s (${ofPeak} % of peak at this clock)` : "";
    const time = timeUs < 1000 ? `${number(timeUs, 2)} us` : `${number(timeUs / 1000, 2)} ms`;
    return `${launch.kernel} on ${launch.gpu} takes ${time}${speed}; ${subjects[part]} busy `
      + `${percent(share)} of the time, more than any other part; ${longestWait(launch, shares)}.`;
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
    box.querySelector(".verdict").textContent = verdict(launch, run, busy, shares);
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
