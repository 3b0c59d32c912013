// The risk against the threshold, at every rate of noise, above the examples that the threshold divides.
const STRIP = 62;

function riskAt(clean, noisy, share) {
  return clean.values.map((value, i) => value + share * (noisy.values[i] - value));
}

function drawRisk(svg, { thetas, densities, noise, chosen, risk, stretched, name }) {
  const least = (ys) => Math.min(...ys), most = (ys) => Math.max(...ys);
  const height = (ys) => (stretched ? ys.map((y) => (y - least(ys)) / (most(ys) - least(ys) || 1)) : ys);
  const curves = noise.map((rate) => height(riskAt(risk.clean, risk.noisy, rate / noise[noise.length - 1])));
  const range = roomy(Math.min(...curves.map(least)), Math.max(...curves.map(most)));
  const xRange = [thetas[0], thetas[thetas.length - 1]];
  const frame = new Frame(svg, xRange, range, { height: 250 + STRIP, bottom: FRAME.bottom + STRIP });
  const [before, after] = [0, chosen].map((k) => risk.minima.values[k]), floor = frame.height - 8;
  frame.axes("θ", !stretched);
  frame.upright(before, "clean", FRAME.top, floor);
  frame.upright(after, "now", FRAME.top, floor);
  noise.forEach((_, k) => { if (k % 2 === 0 && k !== chosen) frame.line(thetas, curves[k], "faint"); });
  frame.line(thetas, curves[chosen], "bold");
  const bottom = (k) => [risk.minima.values[k], interpolated(thetas, curves[k], risk.minima.values[k])];
  noise.forEach((_, k) => { if (k % 2 === 0 && k !== chosen) frame.dot(...bottom(k), "faint", 3); });
  frame.dot(...bottom(chosen), "bold", 5.5);
  const top = Math.max(...densities[0]), room = STRIP - 20;
  densities.forEach((density, k) => {
    const points = density.map((value, i) => [frame.x(thetas[i]), floor - (room * value) / top]);
    frame.add("path", { class: `examples e${k}`, d: `${pathOf([[frame.x(thetas[0]), floor], ...points, [frame.x(xRange[1]), floor]])}Z` });
    const peak = density.indexOf(Math.max(...density));
    frame.add("text", { class: "mid", x: frame.x(thetas[peak]), y: floor - 4 }, k ? "B" : "A");
  });
  svg.setAttribute("aria-label", `Risk of ${name} against the threshold; ${movement(risk.minima.values, chosen, noise)}`);
}

// What became of the minimum, in words.
function movement(minima, chosen, noise) {
  const rate = Math.round(100 * noise[chosen]), from = inTwoDigits(minima[0]), to = inTwoDigits(minima[chosen]);
  if (chosen === 0) return `without noise the minimum is at θ = ${from}`;
  if (from === to) return `the minimum stays at θ = ${from} with ${rate} % wrong labels`;
  return `the minimum moves from θ = ${from} to ${to} with ${rate} % wrong labels`;
}

function inTwoDigits(number) {
  return (Math.round(100 * number) / 100 + 0).toFixed(2).replace("-", "−");
}
