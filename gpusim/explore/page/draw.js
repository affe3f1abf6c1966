"use strict";
// Tables, and pictures of lanes with bars, as SVG. Nothing here knows what they show.
(globalThis.gpusim ??= {}).draw = (() => {
  const LEFT = 150, RIGHT = 990, WIDTH = 1000, LANE = 24, BAR = 18, GAP = 8, LETTER = 6.3;
  const BELOW = 0.35; // share of a lane that its lower bars take
  const HATCHES = { // by the first letter of what matplotlib calls them
    "/": "M0 8L8 0", "\\": "M0 0L8 8", "x": "M0 0L8 8M0 8L8 0", "+": "M4 0V8M0 4H8", "-": "M0 4H8", "|": "M4 0V8",
    ".": "M3 4h2", "o": "M2 4a2 2 0 1 0 4 0a2 2 0 1 0 -4 0",
  };
  const MARKS = { down: "m-4 -4h8l-4 7z", up: "m-4 4h8l-4 -7z", left: "m4 -4v8l-7 -4z" };
  let numPictures = 0;

  function number(value, digits = 0) {
    return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  // ------------------------------------------------------------------ tables

  // Fills a table with texts: the first of each row is its head, all but the first column hold numbers.
  function fill(table, columns, rows) {
    const line = (texts, isHead) => {
      const made = document.createElement("tr");
      made.append(...texts.map((text, at) => {
        const cell = document.createElement(isHead || !at ? "th" : "td");
        if (cell.tagName === "TH") cell.scope = isHead ? "col" : "row";
        if (at) cell.className = "number";
        cell.textContent = text;
        return cell;
      }));
      return made;
    };
    (table.tHead ?? table.createTHead()).replaceChildren(line(columns, true));
    (table.tBodies[0] ?? table.createTBody()).replaceChildren(...rows.map((texts) => line(texts, false)));
  }

  // ------------------------------------------------------------------ pictures

  function element(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const words = (text, x, y, anchor, kind = "words") =>
    element("text", { x, y: y + 4, "text-anchor": anchor, class: kind }, text);

  const mark = ({ shape, isOpen }, x, y) =>
    element("path", { d: `M${x.toFixed(1)} ${y}${MARKS[shape]}`, class: isOpen ? "mark open" : "mark" });

  const isDark = (colour) => [1, 3, 5].reduce((sum, at) => sum + parseInt(colour.slice(at, at + 2), 16), 0) < 330;

  // How a look is filled: its colour, or a pattern that is added to `defs`.
  function fillsOf(defs) {
    const picture = numPictures++, names = new Map();
    return (look) => {
      if (!look.hatch) return look.colour;
      if (!names.has(look)) {
        const id = `hatch${picture}-${names.size}`;
        defs.append(element("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
          element("path", { d: "M0 0H8V8H0z", fill: look.colour }),
          element("path", { d: HATCHES[look.hatch[0]], class: isDark(look.colour) ? "hatch pale" : "hatch" })));
        names.set(look, `url(#${id})`);
      }
      return names.get(look);
    };
  }

  // Round numbers between two others, some eight of them.
  function ticks(from, to) {
    const rough = (to - from) / 8, ten = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * ten).find((size) => size >= rough);
    const first = Math.ceil(from / step);
    return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, at) => (first + at) * step);
  }

  // One lane at height `y`. A bar's text stands in the widest bar that has it, where there is room. Bars of `below` take the
  // lower part of the lane.
  function drawLane(svg, lane, y, x, [from, to], fillOf) {
    const top = y - BAR / 2, paths = new Map(), widest = new Map(), below = lane.below ?? [];
    const tall = below.length ? BAR * (1 - BELOW) : BAR, middleOfBars = top + tall / 2;
    svg.append(words(lane.label, LEFT - 8, y, "end"));
    const drawn = [...lane.bars.map((bar) => [bar, top, tall]), ...below.map((bar) => [bar, top + tall + 1, BAR - tall - 1])];
    for (const [bar, at, height] of drawn) {
      const begin = x(Math.max(bar.from, from)), width = x(Math.min(bar.to, to)) - begin;
      if (!(width > 0)) continue;
      const path = `M${begin.toFixed(2)} ${at}h${width.toFixed(2)}v${height}h-${width.toFixed(2)}z`;
      paths.set(bar.look, (paths.get(bar.look) ?? "") + path);
      const least = widest.get(bar.text)?.width ?? LETTER * (bar.text ?? "").length + 6;
      if (bar.text && width > least) widest.set(bar.text, { middle: begin + width / 2, width });
    }
    for (const [look, d] of paths) svg.append(element("path", { d, fill: fillOf(look), class: "bar" }));
    for (const [text, { middle }] of widest) {
      const width = LETTER * text.length + 4;
      const edge = below.length ? 1 : 3;
      svg.append(element("rect", { x: middle - width / 2, y: top + edge, width, height: tall - 2 * edge, class: "under" }));
      svg.append(words(text, middle, middleOfBars, "middle"));
    }
    for (const one of (lane.marks ?? []).filter(({ at }) => at >= from && at <= to)) {
      if (one.shape) svg.append(mark(one, x(one.at), y + (one.offset ?? 0)));
      else svg.append(words(one.text, x(one.at), y, "middle", "words strong"));
    }
  }

  // Looks and marks with their labels, in lines of the picture's width; returns the height below them.
  function drawLegend(svg, legend, y, fillOf) {
    let x = LEFT;
    for (const item of legend) {
      const width = LETTER * item.label.length + 34;
      if (x + width > RIGHT) [x, y] = [LEFT, y + 20];
      if (item.shape) svg.append(mark(item, x + 7, y));
      else svg.append(element("rect", { x, y: y - 6, width: 14, height: 12, fill: fillOf(item), class: "bar" }));
      svg.append(words(item.label, x + 20, y, "start"));
      x += width;
    }
    return y + 14;
  }

  // A figure of `lanes` ({label, group, bars: [{from, to, look, text}], below: [{from, to, look}],
  // marks: [{at, shape, isOpen, offset} or {at, text}]})
  // in a `window` (from, to). Its `legend` has looks ({label, colour, hatch}) and marks ({label, shape, isOpen}).
  function picture({ title, alt, lanes, window, axis, legend }) {
    const [from, to] = window, x = (value) => LEFT + (RIGHT - LEFT) * (value - from) / (to - from);
    const defs = element("defs", {}), svg = element("svg", { role: "img", "aria-label": alt }, defs);
    const fillOf = fillsOf(defs), grid = element("g", {});
    svg.append(grid);
    let y = LANE / 2 + 2;
    lanes.forEach((lane, at) => {
      if (at && lane.group !== lanes[at - 1].group) y += GAP;
      drawLane(svg, lane, y, x, window, fillOf);
      y += LANE;
    });
    y += 4 - LANE / 2;
    for (const tick of ticks(from, to)) {
      grid.append(element("path", { d: `M${x(tick).toFixed(1)} 0V${y}`, class: "grid" }));
      grid.append(words(number(tick), x(tick), y + 10, "middle"));
    }
    svg.append(words(axis, (LEFT + RIGHT) / 2, y + 26, "middle"));
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${drawLegend(svg, legend, y + 48, fillOf)}`);

    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    const box = document.createElement("div");
    caption.textContent = title;
    box.className = "picture";
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `${title}, scrolls sideways where it is wider than the screen`);
    box.append(svg);
    figure.append(caption, box);
    return figure;
  }

  return { number, fill, picture };
})();
