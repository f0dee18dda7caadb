// How much is left out for want of width. The widths are those of style.css.
import { computed, signal } from '@preact/signals';

function matches(query: string) {
  const list = matchMedia(query);
  const now = signal(list.matches);
  list.addEventListener('change', () => {
    now.value = list.matches;
  });
  return now;
}

// As narrow as a phone?
export const narrow = matches('(max-width: 44rem)');
const medium = matches('(max-width: 60rem)');

// 0: all is shown; 1: what can be done without is left out; 2: on a phone, what is not needed.
export const leftOut = computed(() => (narrow.value ? 2 : medium.value ? 1 : 0));
