// Build elements. Text is always inserted as text.

export const $ = (id) => document.getElementById(id);

/** Make an element: h("p", { class: "quiet" }, "text", child). Handlers go by `onclick` and the like. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Change a text only if it differs, so that nobody's selection or reader is disturbed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Show a sentence in an element, or hide it if there is none. */
export function warn(element, text) {
  say(element, text);
  element.hidden = text === "";
}
