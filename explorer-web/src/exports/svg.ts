/** Drawings of the page as a standalone SVG file, with computed styles inlined. */

const NAMESPACE = "http://www.w3.org/2000/svg";
const INHERITED = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-opacity",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linejoin",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
] as const;

/** Several drawings, stacked, on the page's background. */
export function svgText(title: string, drawings: SVGSVGElement[]): string {
  const sizes = drawings.map((drawing) => ({
    width: drawing.width.baseVal.value,
    height: drawing.height.baseVal.value,
  }));
  const width = Math.max(...sizes.map((size) => size.width)) + 2 * MARGIN;
  const whole = document.createElementNS(NAMESPACE, "svg");
  let top = MARGIN;
  for (const [place, drawing] of drawings.entries()) {
    const copy = styledCopy(drawing) as SVGSVGElement;
    set(copy, { x: MARGIN, y: top, width: sizes[place].width, height: sizes[place].height });
    whole.append(copy);
    top += sizes[place].height + MARGIN;
  }
  set(whole, { xmlns: NAMESPACE, width, height: top, viewBox: `0 0 ${width} ${top}` });
  whole.prepend(named("title", title), ground(width, top));
  return new XMLSerializer().serializeToString(whole);
}

const MARGIN = 16;

/** A copy with computed styles inlined, except those inherited from the parent. */
function styledCopy(element: Element, parent: CSSStyleDeclaration | null = null): Element {
  const isLink = element.localName === "a"; // it leads nowhere from a file
  const copy = isLink ? document.createElementNS(NAMESPACE, "g") : (element.cloneNode(false) as Element);
  for (const name of copy.getAttributeNames()) {
    if (/^(class|style|tabindex|role|aria-.*|data-.*)$/.test(name)) copy.removeAttribute(name);
  }
  const style = getComputedStyle(element);
  for (const name of INHERITED) {
    const value = style.getPropertyValue(name);
    if (value && value !== parent?.getPropertyValue(name)) copy.setAttribute(name, value);
  }
  for (const child of element.childNodes) {
    copy.append(child instanceof Element ? styledCopy(child, style) : child.cloneNode(false));
  }
  return copy;
}

function ground(width: number, height: number): SVGElement {
  const rectangle = document.createElementNS(NAMESPACE, "rect");
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--ground").trim();
  set(rectangle, { width, height, fill: colour });
  return rectangle;
}

function named(tag: string, text: string): SVGElement {
  const element = document.createElementNS(NAMESPACE, tag);
  element.textContent = text;
  return element as SVGElement;
}

function set(element: Element, attributes: Record<string, string | number>): void {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
}
