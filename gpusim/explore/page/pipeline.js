"use strict";
// What a run of a packed launch has told: numbers, shares, and pictures of the SM that was recorded.
(globalThis.gpusim ??= {}).pipeline = (() => {
  const { states, looks, busy: subjects, computes, waits, most_ctas, fills_shown, given_back } = gpusim.engine;
  const { number, fill, picture } = gpusim.draw;
  const CLOSE_CYCLES = 1e-6; // cycles that differ by less are one
  const START = 0; // the first of `states`

  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const byFirst = (a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1]);

  // Runs the launch with sliders at `factors`; null where `goesOn()` says that nobody waits for it any more.
  async function run(told, factors, goesOn, tell) {
    const { launch } = told, began = performance.now();
    const found = await gpusim.run.results(launch, factors, goesOn, tell);
    if (!found) return null;
    const { end_cycle: cycles, num_events } = found.told.named("totals");
    const timeUs = cycles / launch.clock_mhz, tflops = launch.num_flops / (timeUs || Infinity) / 1e6;
    const values = [cycles, timeUs / 1e3, num_events, tflops, launch.peak_tflops ? 100 * tflops / launch.peak_tflops : 0];
    const moved = Object.entries(launch.sliders).filter(([name]) => factors[name] !== "1");
    return {
      ...found, timeUs, ms: performance.now() - began, isMoved: moved.length > 0,
      label: told.label + moved.map(([name, { word }]) => `, ${factors[name]} x ${word}`).join(""),
      figures: told.figures.map((figure, at) => ({ ...figure, value: values[at] })),
    };
  }

  // Share of the kernel's cycles in which each part was busy, as `simulate/verdict.py` has it.
  function busyShares(launch, given, told) {
    const { end_cycle, link_busy_cycles } = told.named("totals"), counted = told.named("counters");
    const cycles = end_cycle || 1, all = cycles * launch.num_sms;
    const { sm_read_bytes_per_cycle, write_bytes_per_cycle } = given.named("constants_xbar");
    const { wire_bytes_per_cycle, write_cost } = given.named("constants_hbm");
    const slices = sum(given.rows("partitions").map((row) => row.slices_bytes_per_cycle));
    const served = counted["xbar.asked_bytes"] ? counted["xbar.read_bytes"] * counted["xbar.carried_bytes"] / counted["xbar.asked_bytes"] : 0;
    const planned = launch.planned_dram_bytes;
    const read = planned ? planned[0] + counted["l2.unplanned_miss_bytes"] : counted["hbm.read_bytes"];
    const shares = {
      tensor: counted["tensor_core.busy_cycles"] / all, sm_intake: counted["xbar.read_bytes"] / (sm_read_bytes_per_cycle * all),
      l2: served / (slices * cycles), l2_link: link_busy_cycles / cycles, store: counted["xbar.write_bytes"] / (write_bytes_per_cycle * cycles),
      hbm: (read + (planned ? planned[1] : counted["hbm.write_bytes"]) * write_cost) / (wire_bytes_per_cycle * cycles),
    };
    const names = gpusim.engine.records.numbers.sm_totals, ofSms = told.numbers("sm_totals");
    for (const part of Object.keys(subjects)) {
      const column = names.indexOf(`${part}_busy_cycles`);
      if (column >= 0) shares[part] = sum(ofSms.filter((_, at) => at % names.length === column)) / all;
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

  // What the role that computes most waits in for most of its life: in words.
  function longestWait(launch, shares) {
    const [worker] = [...shares.keys()].sort((a, b) => {
      const state = computes.find((one) => shares[a][one] !== shares[b][one]);
      return state === undefined ? a - b : shares[b][state] - shares[a][state];
    });
    const [state] = [...waits].sort((a, b) => shares[worker][b] - shares[worker][a]);
    return `role '${launch.roles[worker]}' waits ${percent(shares[worker][state])} of its life in ${states[state].name}`;
  }

  function timelineOf(told) {
    const roles = told.rows("role_begins").map((begun) => ({ ...begun, spans: [] }));
    const byPlace = new Map(roles.map((begun) => [`${begun.cta} ${begun.role}`, begun]));
    for (const span of told.rows("role_states")) byPlace.get(`${span.cta} ${span.role}`).spans.push(span);
    const [copies, reads, mmas, flips] = ["copy_spans", "read_spans", "mma_spans", "phase_flips"].map((name) => told.rows(name));
    return { roles, copies, reads, mmas, flips };
  }

  const grouped = (items, keyOf) => {
    const found = new Map();
    for (const item of items) {
      const key = keyOf(item);
      found.has(key) ? found.get(key).push(item) : found.set(key, [item]);
    }
    return found;
  };

  // From the first thing that happens until the ring has been filled a few times.
  function openingWindow({ roles, copies }) {
    const spans = roles.flatMap((begun) => begun.spans);
    const first = Math.min(...spans.filter((span) => span.state !== START).map((span) => span.start_cycle));
    const last = spans.reduce((latest, span) => Math.max(latest, span.end_cycle), 0);
    const cta = Math.min(...roles.map((begun) => begun.cta));
    const shown = [...grouped(copies.filter((copy) => copy.cta === cta), (copy) => copy.stage).values()]
      .map((own) => own.map((copy) => copy.end_cycle).sort((a, b) => a - b)[fills_shown - 1])
      .filter((end) => end !== undefined);
    const end = shown.length ? Math.min(last, Math.max(...shown)) : last;
    return [Math.max(0, first - 0.02 * (end - first)), end];
  }

  // CTAs that do something in the window: the first ones; without copies some of half-way, too.
  function ctasShown({ roles, copies }, [from, to]) {
    const isLive = (begun) => begun.spans.some((span) => span.state !== START && span.start_cycle < to && span.end_cycle > from);
    const live = [...new Set(roles.filter(isLive).map((begun) => begun.cta))].sort((a, b) => a - b);
    const first = live.slice(0, most_ctas), rest = live.slice(most_ctas);
    if (copies.length || !rest.length) return first;
    const middle = Math.max(0, Math.floor(rest.length / 2) - 1);
    return [...first, ...rest.slice(middle, middle + most_ctas)];
  }

  const bar = (span, look, text = "") => ({ from: span.start_cycle, to: span.end_cycle, look, text });

  function timelinePicture(launch, timeline, window) {
    const ctas = ctasShown(timeline, window), lanes = [];
    const nameOf = (cta, text) => (ctas.length > 1 ? `CTA ${cta} ${text}` : text);
    const isFlip = new Set(timeline.flips.map((flip) => `${flip.cta} ${flip.barrier} ${flip.cycle.toFixed(5)}`));
    for (const cta of ctas) {
      const own = [...grouped(timeline.copies.filter((copy) => copy.cta === cta), (copy) => copy.stage)];
      for (const [stage, copies] of own.sort((a, b) => byFirst(launch.stages[a[0]], launch.stages[b[0]]))) {
        const [buffer, place] = launch.stages[stage];
        const landed = copies.filter((copy) => isFlip.has(`${cta} ${copy.barrier} ${copy.end_cycle.toFixed(5)}`));
        lanes.push({
          label: nameOf(cta, `${buffer}[${place}]`), group: `${cta} ${buffer}`, bars: copies.map((copy) => bar(copy, looks.copy)),
          marks: landed.map((copy) => ({ at: copy.end_cycle, shape: "left" })),
        });
      }
    }
    if (timeline.mmas.length) lanes.push({ label: "tensor core", group: "", bars: timeline.mmas.map((span) => bar(span, looks.mma)) });
    for (const cta of ctas) {
      for (const begun of timeline.roles.filter((item) => item.cta === cta)) {
        const bars = begun.spans.map((span) => bar(span, states[span.state], states[span.state].label));
        lanes.push({ label: nameOf(cta, launch.roles[begun.role]), group: `roles ${cta}`, bars });
      }
    }
    return drawn(launch, "One SM's pipeline", lanes, window, [{ label: "phase of a full barrier completes", shape: "left" }]);
  }

  // Rounds of one stage: copies up to a flip of their barrier; without one, copies until something is read.
  function fillsOf(copies, flips, reads) {
    const rounds = [], turns = new Map();
    for (const copy of [...copies].sort((a, b) => a.start_cycle - b.start_cycle)) {
      const last = rounds[rounds.length - 1];
      if (flips.length) {
        const turn = flips.filter((flip) => flip.cycle < copy.end_cycle - CLOSE_CYCLES).length;
        if (!turns.has(turn)) turns.set(turn, rounds[rounds.push({ start: copy.start_cycle, full: flips[turn]?.cycle, parity: flips[turn]?.parity }) - 1]);
      } else if (!last || reads.some((read) => last.start <= read.start_cycle && read.start_cycle < copy.start_cycle)) {
        rounds.push({ start: copy.start_cycle, full: copy.end_cycle });
      } else {
        last.full = Math.max(last.full, copy.end_cycle);
      }
    }
    return rounds.map((round, at) => {
      const until = rounds[at + 1]?.start ?? Infinity;
      const own = reads.filter((read) => round.start <= read.start_cycle && read.start_cycle < until);
      return { ...round, read: own[0]?.start_cycle, end: own.length ? Math.max(...own.map((read) => read.end_cycle)) : undefined };
    });
  }

  // What a stage is in, from edge to edge.
  function spells(fills, [from, to]) {
    const edges = [[from, looks.empty]];
    for (const { start, full, read, end, parity } of fills) {
      edges.push([start, looks.filling]);
      if (full !== undefined) edges.push([full, looks.full]);
      if (read !== undefined) edges.push([Math.max(read, full ?? read), looks.read, parity]);
      if (end !== undefined) edges.push([end, looks.empty]);
    }
    return edges.map(([at, look, parity], place) => ({ from: Math.max(at, from), to: Math.min(edges[place + 1]?.[0] ?? to, to), look, parity }));
  }

  // Whether a barrier's flips stand between the last read of a round and the next one's first copy, nearly always.
  function givesBack(stages, flips) {
    let tried = 0, met = 0;
    for (const { place, fills } of stages) {
      const cycles = flips.filter((flip) => flip.place === place).map((flip) => flip.cycle);
      fills.slice(1).forEach((after, at) => {
        if (fills[at].end === undefined) return;
        tried += 1;
        met += cycles.some((cycle) => fills[at].end - CLOSE_CYCLES <= cycle && cycle <= after.start + CLOSE_CYCLES);
      });
    }
    return tried > 0 && met >= given_back * tried;
  }

  function ringPicture(launch, timeline, window) {
    const cta = Math.min(...timeline.copies.map((copy) => copy.cta));
    const barrierOf = (item) => launch.barriers[item.barrier] ?? ["", -1];
    const own = (items) => items.filter((item) => item.cta === cta).sort((a, b) => (a.start_cycle ?? a.cycle) - (b.start_cycle ?? b.cycle));
    const copies = own(timeline.copies), reads = own(timeline.reads);
    const flips = own(timeline.flips).map((flip) => ({ ...flip, ring: barrierOf(flip)[0], place: barrierOf(flip)[1] }));
    const filledBy = grouped(copies, (copy) => barrierOf(copy)[0]);
    let rings = [...filledBy].sort(byFirst).map(([barrier, ofRing]) => {
      const stages = [...grouped(ofRing, (copy) => launch.stages[copy.stage][1])].sort((a, b) => a[0] - b[0]).map(([place, ofPlace]) => {
        const flat = new Set(ofPlace.map((copy) => copy.stage)), readsHere = reads.filter((read) => flat.has(read.stage));
        return { place, fills: fillsOf(ofPlace, flips.filter((flip) => flip.ring === barrier && flip.place === place), readsHere) };
      });
      const others = [...grouped(flips.filter((flip) => !filledBy.has(flip.ring)), (flip) => flip.ring).values()];
      return {
        barrier, stages, freed: barrier ? others.filter((ofOne) => givesBack(stages, ofOne)).flat() : [],
        buffers: [...new Set(ofRing.map((copy) => launch.stages[copy.stage][0]))].sort(),
      };
    });
    if (rings.some((ring) => ring.stages.length > 1)) rings = rings.filter((ring) => ring.stages.length > 1);
    const lanes = rings.flatMap((ring) => ring.stages.map(({ place, fills }) => {
      const bars = spells(fills, window), least = 0.015 * (window[1] - window[0]);
      const full = ring.barrier ? fills.filter((round) => round.full !== undefined) : [];
      return {
        label: `${ring.buffers.join(", ")} [${place}]`, group: ring.barrier, bars,
        marks: [
          ...full.map((round) => ({ at: round.full, shape: "down", offset: -9 })),
          ...ring.freed.filter((flip) => flip.place === place).map((flip) => ({ at: flip.cycle, shape: "up", isOpen: true, offset: 9 })),
          ...bars.filter((spell) => spell.parity !== undefined && spell.to - spell.from > least)
            .map((spell) => ({ at: (spell.from + spell.to) / 2, text: String(spell.parity) })),
        ],
      };
    }));
    const freed = [...new Set(rings.flatMap((ring) => ring.freed.map((flip) => flip.ring)))];
    return drawn(launch, "The ring of stages", lanes, window, [
      ...rings.filter((ring) => ring.barrier).map((ring) => ({ label: `mbarrier ${ring.barrier} flips; in green, the parity of its phase`, shape: "down" })),
      ...freed.map((name) => ({ label: `mbarrier ${name} flips`, shape: "up", isOpen: true })),
    ]);
  }

  function drawn(launch, title, lanes, [from, to], marks) {
    const used = new Set(lanes.flatMap((lane) => lane.bars.filter((one) => one.to > from && one.from < to).map((one) => one.look)));
    const hasMarks = new Set(lanes.flatMap((lane) => (lane.marks ?? []).map((mark) => mark.shape)));
    const span = `cycles ${number(from)} to ${number(to)}`;
    return picture({
      title: `${title}, ${span}`, alt: `${title}: ${launch.kernel} on ${launch.gpu}, ${span}; lanes of ${lanes.map((lane) => lane.label).join(", ")}`,
      lanes, from, to, axis: `SM cycles since the launch (1,000 cycles = ${number(1e6 / launch.clock_mhz)} ns at ${number(launch.clock_mhz)} MHz)`,
      legend: [...used, ...marks.filter((mark) => hasMarks.has(mark.shape))],
    });
  }

  function occupancyPicture(launch) {
    const limits = Object.entries(launch.limits), held = Math.min(...limits.map(([, limit]) => limit));
    const most = Math.min(Math.max(...limits.map(([, limit]) => limit)), Math.max(8, 3 * held));
    const lanes = limits.map(([name, limit]) => ({
      label: name, group: "", bars: [{ from: 0, to: limit, look: limit === held ? looks.limits : looks.admits }],
      marks: [{ at: Math.min(limit, most) + most * 0.02, text: String(limit) }],
    }));
    return picture({
      title: "What limits occupancy", alt: `CTAs an SM that each resource alone would admit: ${limits.map(([name, limit]) => `${name} ${limit}`).join(", ")}`,
      lanes, from: 0, to: most * 1.05, axis: "CTAs an SM that each resource alone would admit", legend: [looks.limits, looks.admits],
    });
  }

  // Writes what a run has told into the answer in `box`.
  function show(box, { launch }, { given, told, timeUs, figures, isMoved }) {
    const busy = busyShares(launch, given, told), shares = stateShares(launch, told);
    const [part, most] = busy[0];
    const speed = launch.peak_tflops ? ` at ${number(figures[3].value, 1)} TFLOP/s (${number(figures[4].value, 1)} % of peak at this clock)` : "";
    box.querySelector(".verdict").textContent =
      `${launch.kernel} on ${launch.gpu} takes ${number(timeUs, 2)} us${speed}; ${subjects[part]} busy ${percent(most)} of the time, more than any other part; ${longestWait(launch, shares)}.`;
    box.querySelectorAll(".figures dd").forEach((cell, at) => {
      const { value, unit, digits } = figures[at];
      cell.dataset.value = value; // all digits
      cell.firstChild.textContent = number(value, digits) + (unit && " ");
    });
    box.querySelector("#moved").hidden = !isMoved;
    box.querySelector("#expected").hidden = isMoved;
    const rows = states.map(({ name }, state) => ({ name, own: shares.map((ofRole) => ofRole[state]) }))
      .filter(({ own }) => Math.max(...own) >= launch.least_share).sort((a, b) => Math.max(...b.own) - Math.max(...a.own));
    const [ofStates, ofBusy] = box.querySelectorAll(".tables table");
    fill(ofStates, ["state", ...launch.roles], rows.map(({ name, own }) => [name, ...own.map((share) => (share ? percent(share) : "-"))]));
    fill(ofBusy, ["part", "share"], busy.filter(([, share]) => share >= launch.least_share).map(([name, share]) => [name, percent(share)]));
    const timeline = timelineOf(told), window = openingWindow(timeline);
    box.querySelector("#pictures").replaceChildren(
      timelinePicture(launch, timeline, window), ...(timeline.copies.length ? [ringPicture(launch, timeline, window)] : []), occupancyPicture(launch));
  }

  return { run, show };
})();
