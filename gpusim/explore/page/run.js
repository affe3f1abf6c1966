"use strict";
// Runs a packed launch by the engine's module, the same that Python runs. Names of sections and fields come from Python.
(globalThis.gpusim ??= {}).run = (() => {
  const { records, module } = gpusim.engine;
  const SLICE_MS = 12; // so long the page does not answer
  const FIRST_EVENTS = 2000, LEAST_EVENTS = 200, MOST_EVENTS = 2 ** 31 - 1;
  const FAILED = 2; // what run_slice returns; 0: there is more to do

  const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const compiled = WebAssembly.compile(bytesOf(module));
  compiled.catch(() => {}); // said where it is asked for

  // The sections of a buffer, in either direction, by name.
  class Sections {
    constructor(bytes, layout) {
      this.bytes = bytes;
      this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
      this.places = new Map(layout.map((section, at) => {
        const place = records.header_bytes + at * records.place_bytes;
        const [begin, count] = [place, place + 8].map((where) => Number(this.view.getBigUint64(where, true)));
        return [section.name, { ...section, begin, count }];
      }));
    }

    // Plain float64 numbers.
    numbers(name) {
      const { begin, count } = this.places.get(name);
      return Array.from({ length: count }, (_, at) => this.view.getFloat64(begin + 8 * at, true));
    }

    // The same by their names.
    named(name) {
      const values = this.numbers(name);
      return Object.fromEntries(records.numbers[name].map((field, at) => [field, values[at]]));
    }

    // A table's rows, whose fields have 8 bytes each.
    rows(name) {
      const { begin, count, bytes, fields } = this.places.get(name);
      return Array.from({ length: count }, (_, at) => Object.fromEntries(fields.map(([field, kind], column) => {
        const where = begin + at * bytes + 8 * column;
        return [field, kind === "f8" ? this.view.getFloat64(where, true) : Number(this.view.getBigInt64(where, true))];
      })));
    }
  }

  // A launch's buffer, with the words that sliders at `factors` change.
  function packed(launch, factors) {
    const bytes = bytesOf(launch.buffer), words = new BigUint64Array(bytes.buffer);
    for (const [name, slider] of Object.entries(launch.sliders)) {
      const row = slider.stops.indexOf(factors[name]);
      if (row < 0) throw new Error(`${name} is ${factors[name]}, wants one of ${slider.stops.join(", ")}`);
      const changed = new BigUint64Array(bytesOf(slider.words).buffer);
      slider.places.forEach((place, at) => { words[place] = changed[row * slider.places.length + at]; });
    }
    return bytes;
  }

  // Lets the page draw and hear what was clicked; timers would wait longer.
  const pause = () => new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => { channel.port1.close(); resolve(); };
    channel.port2.postMessage(null);
  });

  // The bytes that come back; null where `goesOn()` is false before the end. `tell` hears how many CTAs have exited.
  async function run(bytes, goesOn = () => true, tell = () => {}) {
    const { exports: engine } = await WebAssembly.instantiate(await compiled, {});
    engine.__wasm_call_ctors?.();
    const at = engine.allocate(bytes.length) >>> 0;
    new Uint8Array(engine.memory.buffer, at, bytes.length).set(bytes);
    if (engine.create(at, bytes.length)) throw new Error("the engine does not take the launch: load the page anew");
    for (let numEvents = FIRST_EVENTS; ;) {
      const began = performance.now();
      if (engine.run_slice(numEvents)) break;
      const change = SLICE_MS / Math.max(performance.now() - began, 0.1);
      numEvents = Math.round(Math.min(Math.max(numEvents * Math.min(change, 8), LEAST_EVENTS), MOST_EVENTS));
      tell(engine.progress(0));
      await pause();
      if (!goesOn()) return null;
    }
    const from = engine.results() >>> 0;
    const length = Number(new DataView(engine.memory.buffer, from).getBigUint64(records.header_bytes - 8, true));
    return new Uint8Array(engine.memory.buffer, from, length).slice();
  }

  // What a run of `launch` has told, and what it was given.
  async function results(launch, factors, goesOn, tell) {
    const bytes = packed(launch, factors);
    const found = await run(bytes, goesOn, tell);
    if (!found) return null;
    const told = new Sections(found, records.output);
    const { kind, cycle } = told.named("failure");
    if (kind) throw new Error(`the run failed at cycle ${Math.round(cycle)}: ${records.failures[kind]}`);
    return { given: new Sections(bytes, records.input), told };
  }

  return { packed, run, results };
})();
