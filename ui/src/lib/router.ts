// Where we are, kept behind the # of the address: nothing of it reaches the broker or its log.
import { signal } from '@preact/signals';

export interface Place {
  view: string;
  id: string;
  tab: string;
}

function parse(): Place {
  const parts = location.hash.replace(/^#\/?/, '').split('/').map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return '';
    }
  });
  return { view: parts[0] || 'overview', id: parts[1] ?? '', tab: parts[2] ?? '' };
}

export const place = signal<Place>(parse());

addEventListener('hashchange', () => {
  place.value = parse();
});

export const hrefTo = (view: string, id = '', tab = ''): string =>
  `#/${[view, id, tab].filter((part, i, all) => part || all.slice(i).some(Boolean)).map(encodeURIComponent).join('/')}`;

export function go(view: string, id = '', tab = ''): void {
  location.hash = hrefTo(view, id, tab);
}
