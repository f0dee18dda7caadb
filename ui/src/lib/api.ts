// Calls to the broker. The token lives in this module, goes out in a header only, and is never in an address.
import { signal } from '@preact/signals';

const STORAGE_KEY = 'berth.token';

let token = '';

// Is somebody signed in? Views are shown when it is true.
export const signedIn = signal(false);
// Why the last one was signed out; shown beside the form.
export const signOutReason = signal('');
// Does the broker answer? False while a network error was the last thing seen.
export const reachable = signal(true);

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
    this.name = 'ApiError';
  }

  // What the reader can do about it.
  get hint(): string {
    return HINTS[this.status] ?? (this.status >= 500 ? 'The log of the broker has the reason, under the request id of this call.' : '');
  }
}

const HINTS: Record<number, string> = {
  0: 'It may be restarting. The page keeps trying by itself.',
  401: 'Sign in again.',
  403: 'Open the page at the address that the broker itself is called by.',
  404: 'It may have been closed or removed meanwhile. Refresh the list.',
  410: 'The session is closed. Its files are under Workspaces; open a session on them to go on.',
  413: 'Raise SANDBOXD_MAX_UPLOAD_BYTES, or send less.',
  429: 'A ceiling is reached: put sessions to sleep or close some, or raise it under Policy.',
  502: 'The container engine refused. Overview shows its health.',
  503: 'The container engine is away, or the broker is full. Overview shows which; it goes on by itself.',
  507: 'The disk or a quota is full: remove files, or raise the quota.',
};

export const currentToken = (): string => token;

export function signIn(value: string, keep: boolean): void {
  token = value;
  if (keep) sessionStorage.setItem(STORAGE_KEY, value);
  signOutReason.value = '';
  signedIn.value = true;
}

export function signOut(reason = ''): void {
  token = '';
  sessionStorage.removeItem(STORAGE_KEY);
  signOutReason.value = reason;
  signedIn.value = false;
}

// Of an earlier load of this tab, when that was asked for.
export const keptToken = (): string => sessionStorage.getItem(STORAGE_KEY) ?? '';

type Query = Record<string, string | number | boolean | undefined>;

export function address(path: string, query: Query = {}): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  return path + (pairs.length ? `?${pairs.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join('&')}` : '');
}

export interface Call {
  method?: string;
  query?: Query;
  // Already encoded query, for paths whose bytes are no UTF-8.
  rawQuery?: string;
  json?: unknown;
  body?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  // Judge this token instead of the one in use.
  asToken?: string;
}

function explain(detail: unknown, fallback: string): string {
  if (typeof detail === 'string') return detail;
  // The dialect's 422: a list of places and words.
  if (Array.isArray(detail)) return detail.map((row) => `${(row.loc ?? []).slice(1).join('.') || 'body'}: ${row.msg}`).join('; ');
  return fallback;
}

// One request; an answer that is no success is thrown as an ApiError, an abort as it is.
export async function request(path: string, call: Call = {}): Promise<Response> {
  const headers: Record<string, string> = { 'X-Sandbox-Token': call.asToken ?? token, ...call.headers };
  let body = call.body;
  if (call.json !== undefined) {
    headers['Content-Type'] = 'application/json';
    body = JSON.stringify(call.json);
  }
  let url = address(path, call.query);
  if (call.rawQuery) url += (url.includes('?') ? '&' : '?') + call.rawQuery;
  let answer: Response;
  try {
    answer = await fetch(url, { method: call.method ?? 'GET', headers, body, signal: call.signal, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (error) {
    if (call.signal?.aborted) throw error;
    reachable.value = false;
    throw new ApiError(0, 'The broker does not answer.');
  }
  reachable.value = true;
  if (answer.ok || answer.status === 304) return answer;
  const text = await answer.text().catch(() => '');
  let message = answer.statusText || `Status ${answer.status}`;
  try {
    message = explain(JSON.parse(text).detail, message);
  } catch {
    // Not the broker's own words: the status has to do.
  }
  if (answer.status === 401 && call.asToken === undefined && signedIn.value) signOut('The broker does not take this token any more. Sign in again.');
  throw new ApiError(answer.status, message);
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await request(path, { query, signal })).json();
}

export async function send<T>(method: string, path: string, json?: unknown, query: Query = {}, signal?: AbortSignal): Promise<T> {
  const answer = await request(path, { method, json, query, signal });
  return answer.status === 204 ? (undefined as T) : answer.json();
}

export interface StreamEvent {
  event: string;
  id: string;
  data: string;
}

// Lines of a streamed body, whole ones only.
async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = '';
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split('\n');
      rest = parts.pop() ?? '';
      yield* parts;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

// Server-sent events by fetch, which can carry the token in a header. Ends with the stream.
export async function* events(path: string, query: Query, signal: AbortSignal, method = 'GET'): AsyncGenerator<StreamEvent> {
  const answer = await request(path, { method, query, signal, headers: { Accept: 'text/event-stream' } });
  if (!answer.body) return;
  let next: StreamEvent = { event: 'message', id: '', data: '' };
  for await (const line of lines(answer.body)) {
    if (line === '') {
      if (next.data) yield next;
      next = { event: 'message', id: '', data: '' };
    } else if (!line.startsWith(':')) {
      const colon = line.indexOf(':');
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
      if (field === 'data') next.data += (next.data ? '\n' : '') + value;
      else if (field === 'event') next.event = value;
      else if (field === 'id') next.id = value;
    }
  }
}

// Lines of JSON as they come.
export async function* records<T>(path: string, query: Query, signal: AbortSignal): AsyncGenerator<T> {
  const answer = await request(path, { query, signal, headers: { Accept: 'application/x-ndjson' } });
  if (!answer.body) return;
  for await (const line of lines(answer.body)) if (line) yield JSON.parse(line);
}

// No answer at all. Said once, above every view, while it lasts (app.tsx).
export const isAway = (error: unknown): boolean => error instanceof ApiError && error.status === 0;

export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === 'AbortError';

// A pause that ends early, without complaint, when the signal does.
export const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
