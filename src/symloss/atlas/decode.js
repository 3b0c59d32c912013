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

function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

// Each code is the difference to the one before. All low bytes come first.
async function codesOf(base64) {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const count = bytes.length / 2, codes = new Uint16Array(count);
  for (let i = 0, code = 0; i < count; i++) codes[i] = code = (code + bytes[i] + 256 * bytes[count + i]) & 65535;
  return codes;
}

function floatsOf(base64) {
  const view = new DataView(bytesOf(base64).buffer);
  return Float32Array.from({ length: view.byteLength / 4 }, (_, i) => view.getFloat32(4 * i, true));
}

async function numbersOf(data) {
  return new Numbers(data.fields, floatsOf(data.scales), await codesOf(data.codes));
}

// The number at x between the points of a rising grid.
function interpolated(xs, ys, x) {
  let right = xs.findIndex((each) => each >= x);
  if (right === 0) return ys[0];
  if (right < 0) return ys[ys.length - 1];
  const share = (x - xs[right - 1]) / (xs[right] - xs[right - 1]);
  return ys[right - 1] + share * (ys[right] - ys[right - 1]);
}
