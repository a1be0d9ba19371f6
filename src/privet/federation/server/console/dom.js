// Elements. Text is always text: nothing here, and nothing on the page, reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes; children are elements or what is shown as text. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same of a drawing. */
export function draw(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Change the text only if it is another: whoever selects or reads it is not disturbed. */
export function say(element, text) {
  if (element.textContent !== String(text)) element.textContent = String(text);
}

/** The element of the page with this id. */
export function at(id) {
  return document.getElementById(id);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}
