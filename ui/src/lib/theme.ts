// Light or dark: the system's, unless chosen here. Kept in this browser; it is no secret.
import { signal } from '@preact/signals';

const KEY = 'berth.theme';
const system = matchMedia('(prefers-color-scheme: dark)');

const chosen = signal(localStorage.getItem(KEY));
export const dark = signal(false);

export function applyTheme(): void {
  dark.value = chosen.value ? chosen.value === 'dark' : system.matches;
  document.documentElement.dataset.theme = dark.value ? 'dark' : 'light';
}
system.addEventListener('change', applyTheme);

export function toggleTheme(): void {
  chosen.value = dark.value ? 'light' : 'dark';
  localStorage.setItem(KEY, chosen.value);
  applyTheme();
}
