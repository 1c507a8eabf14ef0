// Draw points on a canvas by WebGL2, or without it on a 2-D canvas: screen = point * scale + offset, in CSS pixels.
// Points whose alpha is BEHIND lie behind all others.

export const BEHIND = 254;

const VERTEX = `#version 300 es
in vec2 place; in vec4 colour;
uniform vec2 scale; uniform vec2 offset; uniform float size;
out vec4 shade;
void main() {
  gl_Position = vec4(place * scale + offset, colour.a < 1.0 ? 0.5 : 0.0, 1.0);
  gl_PointSize = size;
  shade = colour;
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 shade; out vec4 colour;
void main() {
  vec2 away = gl_PointCoord - 0.5;
  if (dot(away, away) > 0.25) discard;
  colour = vec4(shade.rgb, 1.0);
}`;

function compile(gl, kind, source) {
  const shader = gl.createShader(kind);
  gl.shaderSource(shader, source);
  gl.compileShader(shader);
  if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
  return shader;
}

class ByWebGL {
  constructor(canvas, gl) {
    this.canvas = canvas;
    this.gl = gl;
    const program = gl.createProgram();
    gl.attachShader(program, compile(gl, gl.VERTEX_SHADER, VERTEX));
    gl.attachShader(program, compile(gl, gl.FRAGMENT_SHADER, FRAGMENT));
    gl.linkProgram(program);
    gl.useProgram(program);
    gl.enable(gl.DEPTH_TEST);
    gl.depthFunc(gl.LEQUAL);
    [this.scale, this.offset, this.size] = ["scale", "offset", "size"].map((name) => gl.getUniformLocation(program, name));
    this.places = gl.createBuffer();
    this.colours = gl.createBuffer();
    const attribute = (name, buffer, length, type, normalise) => {
      const place = gl.getAttribLocation(program, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, length, type, normalise, 0, 0);
    };
    attribute("place", this.places, 2, gl.FLOAT, false);
    attribute("colour", this.colours, 4, gl.UNSIGNED_BYTE, true);
    this.count = 0;
  }

  setPlaces(places) {
    this.count = places.length / 2;
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.places);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, places, this.gl.STATIC_DRAW);
  }

  setColours(colours) {
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.colours);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, colours, this.gl.DYNAMIC_DRAW);
  }

  draw({ scale, x, y, width, height, size, ratio }) {
    const { gl } = this;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    if (!this.count) return;
    gl.uniform2f(this.scale, (2 * scale) / width, (-2 * scale) / height);
    gl.uniform2f(this.offset, (2 * x) / width - 1, 1 - (2 * y) / height);
    gl.uniform1f(this.size, size * ratio);
    gl.drawArrays(gl.POINTS, 0, this.count);
  }
}

class ByCanvas {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.places = new Float32Array(0);
    this.colours = new Uint8Array(0);
  }

  setPlaces(places) { this.places = places; }

  setColours(colours) { this.colours = colours; }

  draw({ scale, x, y, size, ratio }) {
    const { width, height } = this.canvas;
    const image = this.context.createImageData(width, height); // one write per frame; 100,000 calls of fillRect are slower
    const pixels = new Uint32Array(image.data.buffer);
    const colours = new Uint32Array(this.colours.buffer);
    const side = Math.max(1, Math.round(size * ratio * 0.85));
    for (const behind of [true, false]) for (let i = 0; i < colours.length; i += 1) {
      if ((colours[i] >>> 24 === BEHIND) !== behind) continue;
      const left = Math.round((this.places[2 * i] * scale + x) * ratio - side / 2);
      const top = Math.round((this.places[2 * i + 1] * scale + y) * ratio - side / 2);
      if (left < 0 || top < 0 || left + side >= width || top + side >= height) continue;
      for (let row = 0; row < side; row += 1) pixels.fill(colours[i], (top + row) * width + left, (top + row) * width + left + side);
    }
    this.context.putImageData(image, 0, 0);
  }
}

/** Make a painter for `canvas`, with WebGL2 if possible. */
export function painter(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, depth: true });
  return gl ? new ByWebGL(canvas, gl) : new ByCanvas(canvas);
}
