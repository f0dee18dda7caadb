// Line icons, 16 by 16; they say nothing to screen readers, whoever uses one has the words.
const PATHS = {
  overview: 'M2 9.5h3.5v4.5H2zM6.3 5.5h3.4V14H6.3zM10.5 2H14v12h-3.5z',
  sessions: 'M2 3h12v10H2zM4.5 6l2 2-2 2M8.5 10.5h3',
  workspaces: 'M1.5 4V13.5h13V5.5H8L6.5 4z',
  events: 'M2 8h3l2-5 3 10 2-5h2',
  policy: 'M8 1.5l5.5 2v4c0 3.5-2.3 5.8-5.5 7-3.2-1.2-5.5-3.5-5.5-7v-4z',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  close: 'M4 4l8 8M12 4l-8 8',
  chevron: 'M6 4l4 4-4 4',
  file: 'M4 1.5h5l3 3v10H4zM9 1.5v3h3',
  folder: 'M1.5 4V13h13V5.5H8L6.5 4z',
  link: 'M7 9l5-5M8.5 3.5H12.5V7.5M11 9v4H3V5h4',
  other: 'M8 2.5a5.5 5.5 0 100 11 5.5 5.5 0 000-11zM8 7.5v3M8 5.5h.01',
  download: 'M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10',
  upload: 'M8 11V3M4.5 6.5L8 3l3.5 3.5M3 13.5h10',
  search: 'M7 2.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM10.5 10.5L14 14',
  refresh: 'M13 8a5 5 0 11-1.5-3.5L13 6M13 2.5V6H9.5',
  plus: 'M8 3v10M3 8h10',
  pin: 'M5.5 2h5l-.7 4.5 2.2 2.5H4l2.2-2.5zM8 9v5',
  warning: 'M8 2L1.5 13.5h13zM8 6.5v3.5M8 11.8h.01',
  good: 'M3 8.5l3.5 3.5L13 4.5',
  pause: 'M5 3v10M11 3v10',
  play: 'M4.5 2.5v11l9-5.5z',
  sun: 'M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1',
  moon: 'M13 9.5A5.5 5.5 0 016.5 3 5.5 5.5 0 1013 9.5z',
  leave: 'M6.5 2.5H3v11h3.5M10 5l3 3-3 3M13 8H6.5',
} as const;

export type IconName = keyof typeof PATHS;

export const Icon = ({ name }: { name: IconName }) => (
  <svg class={`icon icon-${name}`} viewBox="0 0 16 16" aria-hidden="true">
    <path d={PATHS[name]} />
  </svg>
);
