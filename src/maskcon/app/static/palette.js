// Colours of points on the map, even in lightness (OKLCH), for light and dark paper.

const GOLDEN = 137.508; // degrees: consecutive numbers are far apart in hue

function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((value) => {
    const clipped = Math.min(1, Math.max(0, value));
    return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
  });
}

export const isDark = () => {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

export const muted = () => (isDark() ? [70, 74, 80] : [205, 206, 208]);

/** Colour of group `place`; lightness varies too, because eyes tell only about twelve hues apart. */
export function categorical(place) {
  const base = isDark() ? 0.74 : 0.6;
  return oklch(base + [0, 0.09, -0.09][place % 3], 0.14, 25 + place * GOLDEN);
}

/** Colour of a value from 0 (unsure) to 1 (sure). */
export function sequential(value) {
  const base = isDark() ? 0.72 : 0.58;
  return oklch(base + 0.1 * (0.5 - value), 0.15, 45 + 190 * value);
}

export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;
