// What all pictures share: SVG elements, numbers as words, and the marks of an axis.
const SVG = document.querySelector("svg").namespaceURI;

function svgElement(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

// A number with three digits. What is rounding next to numbers of size `unit` is 0.
function inWords(number, unit = 0) {
  const size = Math.abs(number);
  if (size <= 1e-12 * unit) return "0";
  if (size < 1e-3 || size >= 1e5) return number.toExponential(1).replace("e+", "e").replaceAll("-", "−");
  return String(Number(number.toPrecision(3))).replace("-", "−");
}

// Round numbers that divide a range into about so many parts.
function marks(low, high, parts) {
  const raw = (high - low) / parts, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(12)));
  return found;
}

// A range with some room at both ends. It is never empty, and rounding of a constant does not fill it.
function roomy(low, high, share = 0.06) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (high - low <= 1e-9 * size) return [low - (size || 1) / 2, high + (size || 1) / 2];
  const span = high - low;
  return [low - share * span, high + share * span];
}

function pathOf(points) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}
