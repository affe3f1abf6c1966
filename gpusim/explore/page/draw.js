"use strict";
// Tables, and pictures of lanes with bars, as SVG. Nothing here knows what they show.
(globalThis.gpusim ??= {}).draw = (() => {
  const LEFT = 150, RIGHT = 990, WIDTH = 1000, LANE = 24, BAR = 18, GAP = 8, LETTER = 6.3;
  const HATCHES = { // by the first letter of what matplotlib calls them
    "/": "M0 8L8 0", "\\": "M0 0L8 8", "x": "M0 0L8 8M0 8L8 0", "+": "M4 0V8M0 4H8", "-": "M0 4H8", "|": "M4 0V8",
    ".": "M3 4h2", "o": "M2 4a2 2 0 1 0 4 0a2 2 0 1 0 -4 0",
  };
  const MARKS = { down: "m-4 -4h8l-4 7z", up: "m-4 4h8l-4 -7z", left: "m4 -4v8l-7 -4z" };
  let numPictures = 0;

  const isDark = (colour) => [1, 3, 5].reduce((total, at) => total + parseInt(colour.slice(at, at + 2), 16), 0) < 330;
  const number = (value, digits = 0) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

  function element(name, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // Fills a table: texts of columns and rows, the first of each row is its head; columns from `left` on hold numbers.
  function fill(table, columns, rows, left = 1) {
    const cells = (texts, isHead) => texts.map((text, at) => {
      const cell = document.createElement(isHead || !at ? "th" : "td");
      if (cell.tagName === "TH") cell.scope = isHead ? "col" : "row";
      if (at >= left) cell.className = "number";
      cell.textContent = text;
      return cell;
    });
    const lines = (all, isHead) => all.map((texts) => {
      const line = document.createElement("tr");
      line.append(...cells(texts, isHead));
      return line;
    });
    (table.tHead ?? table.createTHead()).replaceChildren(...lines([columns], true));
    (table.tBodies[0] ?? table.createTBody()).replaceChildren(...lines(rows, false));
  }

  // Round numbers between two others, some eight of them.
  function ticks(from, to) {
    const rough = (to - from) / 8, ten = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((times) => times * ten).find((size) => size >= rough);
    const first = Math.ceil(from / step);
    return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, at) => (first + at) * step);
  }

  // A figure of `lanes` ({label, group, bars: [{from, to, look, text}], marks: [{at, shape, isOpen}]}) from `from` to `to`.
  // `legend` are looks ({label, colour, hatch}) and marks ({label, shape, isOpen}).
  function picture({ title, alt, lanes, from, to, axis, legend }) {
    const x = (value) => LEFT + (RIGHT - LEFT) * (value - from) / (to - from);
    const svg = element("svg", { role: "img", "aria-label": alt });
    const defs = element("defs", {}), name = `picture${numPictures++}`, fills = new Map();
    svg.append(defs);

    function fillOf(look) {
      if (!look.hatch) return look.colour;
      if (!fills.has(look.label)) {
        const id = `${name}-${fills.size}`;
        defs.append(element("pattern", { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
          element("path", { d: "M0 0H8V8H0z", fill: look.colour }),
          element("path", { d: HATCHES[look.hatch[0]], class: isDark(look.colour) ? "hatch pale" : "hatch" })));
        fills.set(look.label, `url(#${id})`);
      }
      return fills.get(look.label);
    }

    const swatch = (item, at, y) => item.shape
      ? element("path", { d: `M${at + 7} ${y}${MARKS[item.shape]}`, class: item.isOpen ? "mark open" : "mark" })
      : element("rect", { x: at, y: y - 6, width: 14, height: 12, fill: fillOf(item), class: "bar" });

    const words = (text, at, y, anchor = "start", kind = "words") => element("text", { x: at, y: y + 4, "text-anchor": anchor, class: kind }, text);

    let y = LANE / 2 + 2, group = lanes[0]?.group;
    const tops = [];
    for (const lane of lanes) {
      if (lane.group !== group) y += GAP;
      group = lane.group;
      tops.push(y);
      y += LANE;
    }
    const bottom = y - LANE / 2 + 4;
    for (const tick of ticks(from, to)) {
      svg.append(element("path", { d: `M${x(tick).toFixed(1)} 0V${bottom}`, class: "grid" }), words(number(tick), x(tick), bottom + 10, "middle"));
    }
    svg.append(words(axis, (LEFT + RIGHT) / 2, bottom + 26, "middle"));
    lanes.forEach((lane, place) => {
      const top = tops[place] - BAR / 2, paths = new Map(), widest = new Map();
      svg.append(words(lane.label, LEFT - 8, tops[place], "end"));
      for (const bar of lane.bars) {
        const begin = x(Math.max(bar.from, from)), width = x(Math.min(bar.to, to)) - begin;
        if (!(width > 0)) continue;
        paths.set(bar.look, `${paths.get(bar.look) ?? ""}M${begin.toFixed(2)} ${top}h${width.toFixed(2)}v${BAR}h-${width.toFixed(2)}z`);
        if (bar.text && width > (widest.get(bar.text)?.width ?? LETTER * bar.text.length + 6)) widest.set(bar.text, { begin, width });
      }
      for (const [look, d] of paths) svg.append(element("path", { d, fill: fillOf(look), class: "bar" }));
      for (const [text, { begin, width }] of widest) {
        const half = (LETTER * text.length + 4) / 2;
        svg.append(element("rect", { x: begin + width / 2 - half, y: top + 3, width: 2 * half, height: BAR - 6, class: "under" }),
          words(text, begin + width / 2, tops[place], "middle"));
      }
      for (const mark of lane.marks ?? []) {
        if (mark.at < from || mark.at > to) continue;
        if (mark.shape) svg.append(element("path", { d: `M${x(mark.at).toFixed(1)} ${tops[place] + (mark.offset ?? 0)}${MARKS[mark.shape]}`, class: mark.isOpen ? "mark open" : "mark" }));
        else svg.append(words(mark.text, x(mark.at), tops[place], "middle", "words strong"));
      }
    });
    let at = LEFT, line = bottom + 48;
    for (const item of legend) {
      const wide = LETTER * item.label.length + 34;
      if (at + wide > RIGHT) [at, line] = [LEFT, line + 20];
      svg.append(swatch(item, at, line), words(item.label, at + 20, line));
      at += wide;
    }
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${line + 14}`);

    const figure = document.createElement("figure"), caption = document.createElement("figcaption"), box = document.createElement("div");
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
