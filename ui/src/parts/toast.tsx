// Short words about what was just done, or why not; and long work with its progress.
import { signal } from '@preact/signals';
import { ApiError, isAbort } from '../lib/api';
import { bytes } from '../lib/format';
import { Icon } from './icons';
import { messageOf } from './small';

interface Toast {
  id: number;
  text: string;
  hint: string;
  bad: boolean;
}

export interface Transfer {
  id: number;
  label: string;
  done: number;
  total: number | null;
  // Instead of a count.
  text?: string;
  cancel: () => void;
}

const toasts = signal<Toast[]>([]);
const transfers = signal<Transfer[]>([]);
let lastId = 0;

function show(text: string, bad: boolean, hint = ''): void {
  const id = ++lastId;
  toasts.value = [...toasts.value.slice(-3), { id, text, hint, bad }];
  setTimeout(() => dismiss(id), bad ? 12000 : 4000);
}
const dismiss = (id: number): void => {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
};

export const say = (text: string): void => show(text, false);
export function complain(error: unknown, doing = ''): void {
  if (isAbort(error)) return;
  show((doing ? `${doing}: ` : '') + messageOf(error), true, error instanceof ApiError ? error.hint : '');
}

// Do it and say so, or say why not. True when it went well.
export async function attempt(work: () => Promise<unknown>, done = '', doing = ''): Promise<boolean> {
  try {
    await work();
    if (done) say(done);
    return true;
  } catch (error) {
    complain(error, doing);
    return false;
  }
}

// A row with progress and a way to stop it, for as long as `work` takes; none for what is over within `quietMs`.
export async function transfer<T>(label: string, work: (signal: AbortSignal, progress: (done: number, total: number | null, text?: string) => void) => Promise<T>, quietMs = 0): Promise<T> {
  const id = ++lastId;
  const abort = new AbortController();
  const begin = setTimeout(() => {
    transfers.value = [...transfers.value, { id, label, done: 0, total: null, cancel: () => abort.abort() }];
  }, quietMs);
  try {
    return await work(abort.signal, (done, total, text) => {
      transfers.value = transfers.value.map((row) => (row.id === id ? { ...row, done, total, text } : row));
    });
  } finally {
    clearTimeout(begin);
    transfers.value = transfers.value.filter((row) => row.id !== id);
  }
}

const TransferRow = ({ row }: { row: Transfer }) => (
  <div class="toast">
    <div class="toast-text">
      <p>{row.label}</p>
      <progress aria-label={row.label} value={row.total ? row.done : undefined} max={row.total ?? undefined} />
      <p class="quiet">{row.text ?? (row.total ? `${bytes(row.done)} of ${bytes(row.total)}` : row.done ? bytes(row.done) : '')}</p>
    </div>
    <button type="button" onClick={row.cancel}>
      Cancel
    </button>
  </div>
);

export const Toasts = () => (
  <div class="toasts" role="region" aria-label="Messages" aria-live="polite">
    {transfers.value.map((row) => (
      <TransferRow key={row.id} row={row} />
    ))}
    {toasts.value.map((toast) => (
      <div key={toast.id} class={`toast ${toast.bad ? 'toast-bad' : ''}`} role={toast.bad ? 'alert' : 'status'}>
        <Icon name={toast.bad ? 'warning' : 'good'} />
        <div class="toast-text">
          <p>{toast.text}</p>
          {toast.hint && <p class="quiet">{toast.hint}</p>}
        </div>
        <button type="button" class="bare" aria-label="Dismiss" onClick={() => dismiss(toast.id)}>
          <Icon name="close" />
        </button>
      </div>
    ))}
  </div>
);
