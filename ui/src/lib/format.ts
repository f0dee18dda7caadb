// Numbers and times for people.
const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB'];

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  let unit = 0;
  let size = value;
  while (size >= 1000 && unit < BYTE_UNITS.length - 1) {
    size /= 1024;
    unit++;
  }
  return `${unit === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)} ${BYTE_UNITS[unit]}`;
}

// "512m", as limits are written.
export function parseSize(text: string | null): number | null {
  const match = /^(\d+(?:\.\d+)?)\s*([bkmgt]?)b?$/i.exec(text ?? '');
  if (!match) return null;
  return Number(match[1]) * 1024 ** 'bkmgt'.indexOf((match[2] || 'b').toLowerCase());
}

export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return '–';
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const milliseconds = (ms: number | null | undefined): string =>
  ms === null || ms === undefined ? '–' : ms < 1 ? '<1 ms' : ms < 1000 ? `${Math.round(ms)} ms` : duration(ms / 1000);

export const number = (value: number | null | undefined): string => (value === null || value === undefined ? '–' : value.toLocaleString('en'));

export const percent = (value: number | null | undefined): string => (value === null || value === undefined ? '–' : `${value < 10 ? value.toFixed(1) : Math.round(value)} %`);

const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'long' });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short', year: 'numeric' });

export const exactTime = (seconds: number): string => EXACT.format(new Date(seconds * 1000));
export const clockTime = (seconds: number): string => CLOCK.format(new Date(seconds * 1000));

export function ago(seconds: number, now: number): string {
  const past = now - seconds;
  if (past < -1) return `in ${duration(-past)}`;
  if (past < 5) return 'just now';
  if (past < 30 * 86400) return `${duration(past)} ago`;
  return DAY.format(new Date(seconds * 1000));
}

// A name as it can be looked at: what would break the line, or turn its direction, is written out.
export const visible = (name: string): string => name.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => `‹U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}›`);

// A word of the wire as words, and what the feed says of it without the number of the run.
export const opWords = (op: string): string => op.replaceAll('_', ' ');
export const detailWords = (event: { op: string; detail: string }): string => (event.op.startsWith('run_') ? event.detail.replace(/^[0-9a-f]{32}: /, '') : event.detail);

export const plural = (count: number, one: string, many = `${one}s`): string => `${number(count)} ${count === 1 ? one : many}`;
