// Suggestions for the word that is being typed into a filter: arrows choose, Enter or Tab takes, Esc closes.
"use strict";

(() => {
  const field = document.querySelector("[data-suggest]");
  const list = document.getElementById("suggestions");
  let asked = "";

  function place() {
    const start = field.value.slice(0, field.selectionStart).search(/\S*$/);
    return [start, field.selectionStart];
  }

  function close() {
    asked = ""; // an answer that is still to come is for nobody
    list.hidden = true;
    list.replaceChildren();
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  async function suggest() {
    const [start, end] = place();
    const word = field.value.slice(start, end);
    if (word === "") return close();
    asked = word;
    const answer = await fetch(`${field.dataset.suggest}?word=${encodeURIComponent(word)}`);
    const words = answer.ok ? await answer.json() : [];
    if (asked !== word || document.activeElement !== field) return;
    const chosen = list.querySelector("[aria-selected=true]")?.textContent;
    close();
    words.forEach((each, number) => {
      const item = document.createElement("li");
      item.role = "option";
      item.id = `suggestion-${number}`;
      item.textContent = each;
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(item); });
      list.append(item);
    });
    list.hidden = words.length === 0;
    if (words.includes(chosen)) choose(words.indexOf(chosen) + 1);
    field.setAttribute("aria-expanded", String(words.length > 0));
  }

  function choose(step) {
    const items = [...list.children];
    const now = items.findIndex((item) => item.ariaSelected === "true");
    const next = (now + step + items.length + (now < 0 && step < 0 ? 1 : 0)) % items.length;
    items.forEach((item, number) => { item.ariaSelected = String(number === next); });
    items[next].scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", items[next].id);
  }

  function take(item) {
    const [start, end] = place();
    const whole = !/[:.]$/.test(item.textContent);
    field.setRangeText(item.textContent + (whole && field.value[end] !== " " ? " " : ""), start, end, "end");
    close();
    if (!whole) suggest();
  }

  field.addEventListener("input", suggest);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    const chosen = list.querySelector("[aria-selected=true]");
    if (event.key === "Escape") { close(); event.preventDefault(); }
    else if (list.hidden) return;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") { choose(event.key === "ArrowDown" ? 1 : -1); event.preventDefault(); }
    else if (event.key === "Tab" && !event.shiftKey) { take(chosen ?? list.firstElementChild); event.preventDefault(); }
    else if (event.key === "Enter" && chosen !== null) { take(chosen); event.preventDefault(); }
  });
})();
