// A map on the triangle of three classes: colours on a canvas, contour lines and the point above it.
const RAMP = ["#fbf6dc", "#dbe7b4", "#a3d0a6", "#64b3a8", "#3d8fa6", "#2f699a", "#28447f", "#1a2354"];
const TRIANGLE = [[160, 0], [0, 277], [320, 277]];
const LEVELS = 8;

function colours() {
  const parts = RAMP.map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (parts.length - 1), k = Math.min(Math.floor(at), parts.length - 2);
    return parts[k].map((low, c) => low + (at - k) * (parts[k + 1][c] - low));
  });
}
const COLOURS = colours();

function placeOf(p) {
  return [0, 1].map((axis) => p[0] * TRIANGLE[0][axis] + p[1] * TRIANGLE[1][axis] + p[2] * TRIANGLE[2][axis]);
}

// Shares of the three corners at a place, cut to the triangle.
function sharesAt(x, y) {
  const top = 1 - y / 277, right = x / 320 - top / 2;
  const cut = [top, 1 - top - right, right].map((share) => Math.max(share, 0));
  const total = cut[0] + cut[1] + cut[2];
  return cut.map((share) => share / total);
}

class SimplexGrid {
  // label: the class that the values are for. The library gives them for class 0; a permutation of p gives the others.
  constructor(values, steps, label = 0) {
    this.steps = steps;
    this.values = new Float64Array((steps + 1) ** 2);
    for (let left = 0; left <= steps; left++) {
      for (let right = 0; left + right <= steps; right++) {
        const counts = [steps - left - right, left, right];
        [counts[0], counts[label]] = [counts[label], counts[0]];
        const row = steps - counts[0];
        this.values[left * (steps + 1) + right] = values[(row * (row + 1)) / 2 + counts[2]];
      }
    }
  }

  // The value at a point of the grid, by its counts of the classes 2 and 3.
  corner(left, right) {
    return this.values[left * (this.steps + 1) + right];
  }

  at(shares) {
    const left = shares[1] * this.steps * (1 - 1e-9), right = shares[2] * this.steps * (1 - 1e-9);
    const i = Math.floor(left), j = Math.floor(right), u = left - i, v = right - j;
    if (u + v <= 1 || i + j + 2 > this.steps) {
      const here = this.corner(i, j);
      if (i + j + 1 > this.steps) return here;
      return here + u * (this.corner(i + 1, j) - here) + v * (this.corner(i, j + 1) - here);
    }
    const there = this.corner(i + 1, j + 1);
    return there + (1 - u) * (this.corner(i, j + 1) - there) + (1 - v) * (this.corner(i + 1, j) - there);
  }

  // The line on which the value is `level`, as one path: each small triangle adds a piece.
  contour(level) {
    const pieces = [], n = this.steps;
    const point = (i, j) => ({ place: placeOf([(n - i - j) / n, i / n, j / n]), value: this.corner(i, j) });
    const cross = (a, b) => {
      const share = (level - a.value) / (b.value - a.value);
      return a.place.map((x, axis) => x + share * (b.place[axis] - x));
    };
    const add = (...corners) => {
      const ends = corners.map((a, k) => [a, corners[(k + 1) % 3]]).filter(([a, b]) => a.value > level !== b.value > level);
      if (ends.length === 2) pieces.push(pathOf(ends.map(([a, b]) => cross(a, b))));
    };
    for (let i = 0; i < n; i++) {
      for (let j = 0; i + j < n; j++) {
        add(point(i, j), point(i + 1, j), point(i, j + 1));
        if (i + j + 1 < n) add(point(i + 1, j + 1), point(i + 1, j), point(i, j + 1));
      }
    }
    return pieces.join("");
  }
}

function paint(canvas, grid, [low, high]) {
  const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
  for (let y = 0, i = 0; y < canvas.height; y++) {
    for (let x = 0; x < canvas.width; x++, i += 4) {
      const share = (grid.at(sharesAt(x + 0.5, y + 0.5)) - low) / (high - low);
      const colour = COLOURS[Math.max(0, Math.min(255, Math.floor(255.999 * share)))];
      image.data.set(colour, i);
      image.data[i + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
}

function paintScale(canvas) {
  const context = canvas.getContext("2d"), image = context.createImageData(256, 1);
  COLOURS.forEach((colour, i) => image.data.set([...colour, 255], 4 * i));
  context.putImageData(image, 0, 0);
}

// Contour lines, the triangle, the numbers of its corners, and the point, which is moved later.
function drawLines(svg, grid, levels, chosen) {
  svg.replaceChildren();
  for (const d of levels.map((level) => grid.contour(level)).filter(Boolean)) {
    svg.append(svgElement("path", { class: "contour under", d }), svgElement("path", { class: "contour", d }));
  }
  svg.append(svgElement("path", { class: "outline", d: `${pathOf(TRIANGLE)}Z` }));
  [[160, -7], [-2, 295], [322, 295]].forEach(([x, y], k) => {
    svg.append(svgElement("text", { class: k === chosen ? "mid chosen" : "mid", x, y }, String(k + 1)));
  });
  for (const kind of ["point under", "point"]) svg.append(svgElement("circle", { class: kind, r: 6 }));
}

// Draw one map, if it is not there yet, and its point. `span` is the least span of its colours.
function drawMap(figure, { values, low, high, steps, label, chosen, span, at, title }) {
  const grid = new SimplexGrid(values, steps, label), missing = Math.max(0, span - (high - low)) / 2;
  const range = [low - missing, high + missing];
  if (range[0] === range[1]) range.splice(0, 2, low - 1, high + 1);
  if (figure.dataset.drawn !== title) {
    figure.dataset.drawn = title;
    paint(figure.querySelector(".map canvas"), grid, range);
    drawLines(figure.querySelector("svg"), grid, high - low < 1e-9 * (range[1] - range[0]) ? [] : marks(...range, LEVELS), chosen);
  }
  const [x, y] = placeOf(at);
  for (const circle of figure.querySelectorAll("circle")) circle.setAttribute("transform", `translate(${x} ${y})`);
  const [least, most] = figure.querySelectorAll(".scale span");
  least.textContent = inWords(range[0]);
  most.textContent = inWords(range[1]);
  figure.querySelector("figcaption b").textContent = title;
  return grid.at(at);
}
