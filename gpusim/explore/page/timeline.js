"use strict";
// Pictures of the SM that a run recorded: its pipeline, its ring of stages, and what limits its CTAs. What is shown, and in
// which colours, is as in report/plots/timeline.py and report/plots/ring.py.
(globalThis.gpusim ??= {}).timeline = (() => {
  const { states, looks, most_ctas, fills_shown, given_back } = gpusim.engine;
  const { number, picture } = gpusim.draw;
  const CLOSE_CYCLES = 1e-6; // cycles that differ by less are one
  const START = 0; // the first of `states`
  const LEAST_WIDTH = 0.015; // share of the window from which on a bar has room for a digit

  const byNumber = (a, b) => a - b;
  const isClose = (a, b) => Math.abs(a - b) < CLOSE_CYCLES;

  function grouped(items, keyOf) {
    const found = new Map();
    for (const item of items) {
      const key = keyOf(item);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(item);
    }
    return found;
  }

  // ------------------------------------------------------------------ what was recorded

  // Rows of the results, with the names of their stages and barriers, in the order in which things began.
  function recorded(launch, told) {
    const stage = (row) => ({ ...row, buffer: launch.stages[row.stage][0], place: launch.stages[row.stage][1] });
    const rows = (name) => told.rows(name).sort((a, b) => a.start_cycle - b.start_cycle);
    const roles = told.rows("role_begins").map((begun) => ({ ...begun, name: launch.roles[begun.role], spans: [] }));
    const byPlace = new Map(roles.map((begun) => [`${begun.cta} ${begun.role}`, begun]));
    for (const span of told.rows("role_states")) byPlace.get(`${span.cta} ${span.role}`).spans.push(span);
    return {
      roles, mmas: rows("mma_spans"), reads: rows("read_spans").map(stage),
      copies: rows("copy_spans").map((copy) => ({ ...stage(copy), ring: launch.barriers[copy.barrier]?.[0] ?? "" })),
      flips: told.rows("phase_flips").sort((a, b) => a.cycle - b.cycle)
        .map((flip) => ({ ...flip, ring: launch.barriers[flip.barrier][0], place: launch.barriers[flip.barrier][1] })),
    };
  }

  // From the first thing that happens until a ring has been filled a few times: of several the one that is filled soonest.
  function openingWindow({ roles, copies }) {
    const spans = roles.flatMap((begun) => begun.spans), cta = Math.min(...roles.map((begun) => begun.cta));
    const first = Math.min(...roles.flatMap((begun) => begun.spans.find((span) => span.state !== START)?.start_cycle ?? []));
    const last = spans.reduce((most, span) => Math.max(most, span.end_cycle), 0);
    const ofBuffers = [...grouped(copies.filter((copy) => copy.cta === cta), (copy) => copy.buffer).values()].map((own) =>
      [...grouped(own, (copy) => copy.stage).values()].filter((fills) => fills.length >= fills_shown)
        .map((fills) => fills.map((copy) => copy.end_cycle).sort(byNumber)[fills_shown - 1]));
    const end = Math.min(last, ...ofBuffers.filter((ends) => ends.length).map((ends) => Math.max(...ends)));
    return [Math.max(0, first - 0.02 * (end - first)), end];
  }

  // CTAs that do something in the window: the first ones; without copies some of half-way, too.
  function ctasShown({ roles, copies }, [from, to]) {
    const isSeen = (span) => span.state !== START && span.start_cycle < to && span.end_cycle > from;
    const live = new Set(roles.filter((begun) => begun.spans.some(isSeen)).map((begun) => begun.cta));
    const ctas = [...live].sort(byNumber), rest = ctas.slice(most_ctas);
    const middle = copies.length ? rest.length : Math.max(0, Math.floor(rest.length / 2) - 1);
    return [...ctas.slice(0, most_ctas), ...rest.slice(middle, middle + most_ctas)];
  }

  // ------------------------------------------------------------------ the pipeline

  const bar = (span, look, text) => ({ from: span.start_cycle, to: span.end_cycle, look, text });

  function pipelineLanes(timeline, window) {
    const ctas = ctasShown(timeline, window), prefix = (cta) => (ctas.length > 1 ? `CTA ${cta} ` : "");
    const copies = ctas.flatMap((cta) => {
      const flips = timeline.flips.filter((flip) => flip.cta === cta);
      const isFull = (copy) => flips.some((flip) => flip.barrier === copy.barrier && isClose(flip.cycle, copy.end_cycle));
      const lanes = [...grouped(timeline.copies.filter((copy) => copy.cta === cta), (copy) => copy.stage).values()];
      lanes.sort(([a], [b]) => a.buffer.localeCompare(b.buffer) || a.place - b.place);
      return lanes.map((own) => ({
        label: `${prefix(cta)}${own[0].buffer}[${own[0].place}]`, group: `${cta} ${own[0].buffer}`,
        bars: own.map((copy) => bar(copy, looks.copy)),
        marks: own.filter((copy) => copy.start_cycle < window[1] && isFull(copy))
          .map((copy) => ({ at: copy.end_cycle, shape: "left" })),
      }));
    });
    const products = { label: "tensor core", group: "", bars: timeline.mmas.map((span) => bar(span, looks.mma)) };
    const roles = ctas.flatMap((cta) => timeline.roles.filter((begun) => begun.cta === cta).map((begun) => ({
      label: prefix(cta) + begun.name, group: `roles ${cta}`,
      bars: begun.spans.map((span) => bar(span, states[span.state], states[span.state].label)),
      below: timeline.mmas.filter((span) => span.cta === cta && span.role === begun.role).map((span) => bar(span, looks.own_mma)),
    })));
    return [...copies, ...(timeline.mmas.length ? [products] : []), ...roles];
  }

  // ------------------------------------------------------------------ the ring of stages

  // Rounds of one stage: copies up to a flip of their barrier; without one, copies until something is read.
  function fillsOf(copies, flips, reads) {
    const rounds = [];
    for (const copy of copies) {
      const turn = flips.filter((flip) => flip.cycle < copy.end_cycle - CLOSE_CYCLES).length; // of its phase
      const last = rounds.at(-1);
      const isRead = (read) => last.start <= read.start_cycle && read.start_cycle < copy.start_cycle;
      if (!last || (flips.length ? turn !== last.turn : reads.some(isRead))) {
        rounds.push({ turn, start: copy.start_cycle, full: copy.end_cycle });
      }
      if (flips.length) Object.assign(rounds.at(-1), { full: flips[turn]?.cycle, parity: flips[turn]?.parity });
      else rounds.at(-1).full = Math.max(rounds.at(-1).full, copy.end_cycle);
    }
    return rounds.map((round, at) => {
      const until = rounds[at + 1]?.start ?? Infinity;
      const own = reads.filter((read) => round.start <= read.start_cycle && read.start_cycle < until);
      if (!own.length) return round;
      return { ...round, read: own[0].start_cycle, end: Math.max(...own.map((read) => read.end_cycle)) };
    });
  }

  // What a stage is in, one after the other.
  function spells(fills, [from, to]) {
    const edges = [[from, looks.empty]];
    for (const { start, full, read, end, parity } of fills) {
      edges.push([start, looks.filling], [full, looks.full]);
      if (read !== undefined) edges.push([Math.max(read, full ?? read), looks.read, parity], [end, looks.empty]);
    }
    const known = edges.filter(([at]) => at !== undefined);
    return known.map(([at, look, parity], place) => {
      const until = known[place + 1]?.[0] ?? to;
      return { from: Math.max(at, from), to: Math.min(until, to), look, parity };
    });
  }

  // Whether a barrier's flips stand between the last read of a round and the next one's first copy, nearly always.
  function givesBack(stages, flips) {
    const tried = stages.flatMap(({ place, fills }) => {
      const cycles = flips.filter((flip) => flip.place === place).map((flip) => flip.cycle);
      const rounds = fills.slice(1).map(({ start }, before) => ({ start, end: fills[before].end }));
      return rounds.filter(({ end }) => end !== undefined).map(({ start, end }) =>
        cycles.some((cycle) => end - CLOSE_CYCLES <= cycle && cycle <= start + CLOSE_CYCLES));
    });
    return tried.length > 0 && tried.filter(Boolean).length >= given_back * tried.length;
  }

  // Stages of the first CTA that are filled together: those whose copies complete on one ring of mbarriers, or on none.
  function ringsOf(timeline) {
    const cta = Math.min(...timeline.copies.map((copy) => copy.cta));
    const [copies, reads, flips] = [timeline.copies, timeline.reads, timeline.flips]
      .map((rows) => rows.filter((row) => row.cta === cta));
    const byRing = grouped(copies, (copy) => copy.ring);
    const rings = [...byRing].sort(([a], [b]) => a.localeCompare(b)).map(([name, own]) => {
      const buffers = [...new Set(own.map((copy) => copy.buffer))].sort();
      const places = [...new Set(own.map((copy) => copy.place))].sort(byNumber);
      const stages = places.map((place) => ({
        place, fills: fillsOf(
          own.filter((copy) => copy.place === place), flips.filter((flip) => flip.ring === name && flip.place === place),
          reads.filter((read) => read.place === place && buffers.includes(read.buffer))),
      }));
      const others = [...grouped(flips.filter((flip) => !byRing.has(flip.ring)), (flip) => flip.ring).values()];
      return { name, buffers, stages, freed: name ? others.filter((ofOne) => givesBack(stages, ofOne)).flat() : [] };
    });
    return rings.some((ring) => ring.stages.length > 1) ? rings.filter((ring) => ring.stages.length > 1) : rings;
  }

  function ringLanes(rings, window) {
    return rings.flatMap(({ name, buffers, stages, freed }) => stages.map(({ place, fills }) => {
      const bars = spells(fills, window), least = LEAST_WIDTH * (window[1] - window[0]);
      const full = name ? fills.filter((round) => round.full !== undefined) : [];
      const named = bars.filter((spell) => spell.parity !== undefined && spell.to - spell.from > least);
      const back = freed.filter((flip) => flip.place === place);
      return {
        label: `${buffers.join(", ")} [${place}]`, group: name, bars,
        marks: [
          ...full.map((round) => ({ at: round.full, shape: "down", offset: -9 })),
          ...back.map((flip) => ({ at: flip.cycle, shape: "up", isOpen: true, offset: 9 })),
          ...named.map((spell) => ({ at: (spell.from + spell.to) / 2, text: String(spell.parity) })),
        ],
      };
    }));
  }

  // ------------------------------------------------------------------ pictures

  function drawn(launch, title, lanes, window, marks) {
    const [from, to] = window, isSeen = (bar) => bar.to > from && bar.from < to;
    const used = new Set(lanes.flatMap(({ bars, below = [] }) => [...bars, ...below].filter(isSeen).map((bar) => bar.look)));
    const shapes = new Set(lanes.flatMap((lane) => (lane.marks ?? []).map((mark) => mark.shape)));
    const span = `cycles ${number(from)} to ${number(to)}`, labels = lanes.map((lane) => lane.label).join(", ");
    const ns = number(1e6 / launch.clock_mhz), mhz = number(launch.clock_mhz);
    return picture({
      title: `${title}, ${span}`, alt: `${title}: ${launch.kernel} on ${launch.gpu}, ${span}; lanes of ${labels}`,
      lanes, window, axis: `SM cycles since the launch (1,000 cycles = ${ns} ns at ${mhz} MHz)`,
      legend: [...used, ...marks.filter((mark) => shapes.has(mark.shape))],
    });
  }

  function occupancyPicture(launch) {
    const limits = Object.entries(launch.limits), numbers = limits.map(([, limit]) => limit), held = Math.min(...numbers);
    const most = Math.min(Math.max(...numbers), Math.max(8, 3 * held));
    const lanes = limits.map(([label, limit]) => ({
      label, group: "", bars: [{ from: 0, to: limit, look: limit === held ? looks.limits : looks.admits }],
      marks: [{ at: Math.min(limit, most) + most * 0.02, text: String(limit) }],
    }));
    const axis = "CTAs an SM that each resource alone would admit";
    return picture({
      title: "What limits occupancy", alt: `${axis}: ${limits.map(([name, limit]) => `${name} ${limit}`).join(", ")}`,
      lanes, window: [0, most * 1.05], axis, legend: [looks.limits, looks.admits],
    });
  }

  function pictures(launch, told) {
    const timeline = recorded(launch, told), window = openingWindow(timeline);
    const pipeline = drawn(launch, "One SM's pipeline", pipelineLanes(timeline, window), window, [
      { label: "phase of a full barrier completes", shape: "left" },
    ]);
    if (!timeline.copies.length) return [pipeline, occupancyPicture(launch)]; // there is no ring
    const rings = ringsOf(timeline), freed = new Set(rings.flatMap((ring) => ring.freed.map((flip) => flip.ring)));
    const ring = drawn(launch, "The ring of stages", ringLanes(rings, window), window, [
      ...rings.map(({ name }) => ({ label: `mbarrier ${name} flips; digits are the parity of its phase`, shape: "down" })),
      ...[...freed].map((name) => ({ label: `mbarrier ${name} flips`, shape: "up", isOpen: true })),
    ]);
    return [pipeline, ring, occupancyPicture(launch)];
  }

  return { pictures };
})();
