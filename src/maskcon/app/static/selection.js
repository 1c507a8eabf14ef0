// The selected images, shared by all views.

const chosen = new Set();
const bus = new EventTarget();

export const selection = {
  get size() { return chosen.size; },
  get ids() { return [...chosen]; },
  has: (id) => chosen.has(id),
  onChange(handler) { bus.addEventListener("change", handler); },

  set(ids) {
    chosen.clear();
    for (const id of ids) chosen.add(id);
    changed();
  },
  add(ids) {
    for (const id of ids) chosen.add(id);
    changed();
  },
  remove(ids) {
    for (const id of ids) chosen.delete(id);
    changed();
  },
  toggle(id) {
    if (!chosen.delete(id)) chosen.add(id);
    changed();
  },
  clear() {
    if (chosen.size) this.set([]);
  },
};

function changed() {
  bus.dispatchEvent(new Event("change"));
}
