// The page's policy allows style sheets from files and through the CSSOM only, no <style> with text. xterm.js writes three. It is given this
// document, whose createElement makes stand-ins for them: their text becomes an adopted style sheet.
const make = (tag: string): HTMLElement => Document.prototype.createElement.call(document, tag);

function standInForStyle(): HTMLElement {
  const sheet = new CSSStyleSheet();
  const element = make('span');
  element.hidden = true;
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, 'textContent', {
    set(text: string) {
      sheet.replaceSync(text);
    },
  });
  element.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== sheet);
    HTMLElement.prototype.remove.call(element);
  };
  return element;
}

const createElement = (tag: string): HTMLElement => (tag === 'style' ? standInForStyle() : make(tag));

export const styledDocument: Document = new Proxy(document, {
  get(target, key) {
    if (key === 'createElement') return createElement;
    const value: unknown = Reflect.get(target, key, target);
    return typeof value === 'function' ? value.bind(target) : value;
  },
});

// For what asks the window's own document in spite of that: the stand-ins are made for as long as `work` takes.
export function withStyledDocument(work: () => void): void {
  document.createElement = createElement as typeof document.createElement;
  try {
    work();
  } finally {
    delete (document as Partial<Document>).createElement;
  }
}
