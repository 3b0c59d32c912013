// A chart with two axes. It is drawn at the size it has on the screen, so that its letters keep theirs.
const FRAME = { left: 52, right: 12, top: 10, bottom: 34, height: 230 };

class Frame {
  constructor(svg, xRange, yRange, { height = FRAME.height, bottom = FRAME.bottom } = {}) {
    this.svg = svg;
    this.width = Math.max(svg.parentElement.clientWidth, 200);
    this.height = height;
    this.base = height - bottom;
    this.xRange = xRange;
    this.yRange = yRange;
    svg.setAttribute("viewBox", `0 0 ${this.width} ${height}`);
    svg.setAttribute("height", height);
    svg.replaceChildren();
  }

  x(value) {
    const [low, high] = this.xRange;
    return FRAME.left + ((value - low) / (high - low)) * (this.width - FRAME.left - FRAME.right);
  }

  y(value) {
    const [low, high] = this.yRange;
    return this.base - ((value - low) / (high - low)) * (this.base - FRAME.top);
  }

  // What x is at a place on the screen.
  under(event) {
    const box = this.svg.getBoundingClientRect(), [low, high] = this.xRange;
    const share = (event.clientX - box.left - FRAME.left) / (this.width - FRAME.left - FRAME.right);
    return Math.min(high, Math.max(low, low + share * (high - low)));
  }

  add(name, attributes, text = null) {
    const made = svgElement(name, attributes, text);
    this.svg.append(made);
    return made;
  }

  axes(xTitle, yTicks = true) {
    for (const tick of marks(...this.xRange, this.width < 300 ? 4 : 6)) {
      this.add("line", { class: "rule", x1: this.x(tick), x2: this.x(tick), y1: FRAME.top, y2: this.base });
      this.add("text", { class: "mid", x: this.x(tick), y: this.base + 15 }, inWords(tick));
    }
    for (const tick of yTicks ? marks(...this.yRange, 5) : []) {
      this.add("line", { class: tick === 0 ? "rule zero" : "rule", x1: FRAME.left, x2: this.width - FRAME.right, y1: this.y(tick), y2: this.y(tick) });
      this.add("text", { class: "end", x: FRAME.left - 7, y: this.y(tick) + 4 }, inWords(tick));
    }
    this.add("text", { class: "mid", x: (FRAME.left + this.width - FRAME.right) / 2, y: this.base + 30 }, xTitle);
  }

  line(xs, ys, kind) {
    const points = [];
    xs.forEach((x, i) => points.push([this.x(x), this.y(ys[i])]));
    this.add("path", { class: `line ${kind}`, d: pathOf(points) });
  }

  dot(x, y, kind, radius = 4.5) {
    this.add("circle", { class: `dot ${kind}`, cx: this.x(x), cy: this.y(y), r: radius });
  }

  upright(x, kind, top = FRAME.top, base = this.base) {
    this.add("line", { class: kind, x1: this.x(x), x2: this.x(x), y1: top, y2: base });
  }
}

// Curves of both losses over one axis. A series has xs, ys, a side, and the range that its axis must show.
function drawCurves(svg, series, { xRange, xTitle, at, title }) {
  const inside = series.map(({ xs, ys, ...rest }) => {
    const kept = xs.map((_, i) => i).filter((i) => xs[i] >= xRange[0] - 1e-9 && xs[i] <= xRange[1] + 1e-9);
    return { xs: kept.map((i) => xs[i]), ys: kept.map((i) => ys[i]), ...rest };
  });
  const ends = inside.map(({ ys, room }) => {
    const low = Math.min(...ys), high = Math.max(...ys), missing = Math.max(0, room - (high - low)) / 2;
    return [low - missing, high + missing];
  });
  const frame = new Frame(svg, xRange, roomy(Math.min(...ends.map((e) => e[0])), Math.max(...ends.map((e) => e[1]))));
  frame.axes(xTitle);
  if (at >= xRange[0] && at <= xRange[1]) frame.upright(at, "probe");
  for (const { xs, ys, side } of [...inside].reverse()) frame.line(xs, ys, side);
  for (const { xs, ys, side } of [...inside].reverse()) if (at >= xRange[0] && at <= xRange[1]) frame.dot(at, interpolated(xs, ys, at), side);
  const words = inside.map(({ name, xs, ys }) => `${name} goes from ${inWords(ys[0])} to ${inWords(ys[ys.length - 1])}`);
  svg.setAttribute("aria-label", `${title}: ${words.join("; ")}`);
  return frame;
}
