"use strict";

// The numbers of the library, read from the page. An array is stored as 16-bit codes with a least number and a step.
class Numbers {
  constructor(fields, scales, codes) {
    this.scales = scales;
    this.codes = codes;
    this.places = {};
    this.length = 0;
    for (const [name, length] of Object.entries(fields)) {
      this.places[name] = { index: Object.keys(this.places).length, start: this.length, length };
      this.length += length;
    }
  }

  // One array of one setting: its numbers, and how much they vary.
  array(setting, field) {
    const { index, start, length } = this.places[field];
    const scale = 2 * (setting * Object.keys(this.places).length + index);
    const low = this.scales[scale], step = this.scales[scale + 1];
    const codes = this.codes.subarray(setting * this.length + start, setting * this.length + start + length);
    return { values: Float64Array.from(codes, (code) => low + step * code), low, high: low + 65535 * step, span: 65535 * step };
  }
}

async function bytesOf(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Each code is the difference to the one before. All low bytes come first.
async function codesOf(base64) {
  const bytes = await bytesOf(base64);
  const count = bytes.length / 2, codes = new Uint16Array(count);
  for (let i = 0, code = 0; i < count; i++) codes[i] = code = (code + bytes[i] + 256 * bytes[count + i]) & 65535;
  return codes;
}

async function floatsOf(base64) {
  const view = new DataView((await bytesOf(base64)).buffer);
  return Float64Array.from({ length: view.byteLength / 8 }, (_, i) => view.getFloat64(8 * i, true));
}

async function numbersOf(data) {
  return new Numbers(data.fields, await floatsOf(data.scales), await codesOf(data.codes));
}

// The number at x between the points of a rising grid.
function interpolated(xs, ys, x) {
  let right = xs.findIndex((each) => each >= x);
  if (right === 0) return ys[0];
  if (right < 0) return ys[ys.length - 1];
  const share = (x - xs[right - 1]) / (xs[right] - xs[right - 1]);
  return ys[right - 1] + share * (ys[right] - ys[right - 1]);
}
