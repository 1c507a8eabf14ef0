"use strict";
// For the whole page: a count of errors, the choice of colours, copy buttons, scrolling by keyboard.
(() => {
  const root = document.documentElement;
  root.dataset.errors = "0";
  const failed = () => { root.dataset.errors = String(Number(root.dataset.errors) + 1); };
  addEventListener("error", failed);
  addEventListener("unhandledrejection", failed);

  // The choice is stored if the browser allows it; for files opened from a disk some do not.
  const storage = {
    read() { try { return localStorage.getItem("maskcon-theme"); } catch { return null; } },
    write(value) { try { localStorage.setItem("maskcon-theme", value); } catch { /* the choice lasts until the page is closed */ } },
  };
  const theme = document.getElementById("theme");
  const choices = [...theme.querySelectorAll("input")];
  function wear(value) {
    if (value === "auto") delete root.dataset.theme;
    else root.dataset.theme = value;
    root.dispatchEvent(new Event("themechange"));
  }
  for (const choice of choices) {
    choice.addEventListener("change", () => { wear(choice.value); storage.write(choice.value); });
    if (choice.value === storage.read()) { choice.checked = true; wear(choice.value); }
  }
  theme.hidden = false;

  for (const button of document.querySelectorAll("button.copy")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", () => {
      const code = button.parentElement.querySelector("code");
      navigator.clipboard.writeText(code.textContent).then(
        () => { button.textContent = "Copied"; },
        () => { getSelection().selectAllChildren(code); button.textContent = "Selected"; },
      );
    });
  }

  // Boxes that scroll sideways get a tab stop, so that the keyboard can scroll them too; the others need none.
  function markScrollers() {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }
  markScrollers();
  addEventListener("resize", markScrollers);
  for (const details of document.querySelectorAll("details")) details.addEventListener("toggle", markScrollers);
})();
