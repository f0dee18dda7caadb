// What the views share: polled or fed as long as somebody is signed in and looks.
import { computed, effect, signal, untracked } from '@preact/signals';
import { ApiError, events, get, isAbort, pause, reachable, signedIn } from './api';
import type { FeedEvent, Policy, Session, SessionList, Tenant } from './types';

const FEED_KEPT = 5000;
const FEED_BEFORE = 500;

// Seconds since 1970, moving once a second: ages are computed from it.
export const now = signal(Date.now() / 1000);
export const sessions = signal<Session[] | null>(null);
export const limits = signal<Omit<SessionList, 'sessions'>>({ limit: null, open_limit: null, tenant_limit: null });
export const tenants = signal<Tenant[] | null>(null);
export const policy = signal<Policy | null>(null);
export const feed = signal<FeedEvent[]>([]);
export const feedLive = signal(false);
export const sessionsError = signal<unknown>(null);

export const sessionOf = (id: string): Session | undefined => sessions.value?.find((session) => session.session_id === id);

export type SessionState = 'running' | 'frozen' | 'asleep' | 'dead';
export function stateOf(session: Session): SessionState {
  if (session.state === 'hibernated') return 'asleep';
  if (session.frozen) return 'frozen';
  return session.alive ? 'running' : 'dead';
}
export const STATE_TEXT: Record<SessionState, string> = { running: 'Running', frozen: 'Frozen', asleep: 'Asleep', dead: 'Stopped' };

export const counts = computed(() => {
  const count = { running: 0, frozen: 0, asleep: 0, dead: 0, commands: 0 };
  for (const session of sessions.value ?? []) {
    count[stateOf(session)]++;
    count.commands += session.running_commands ?? 0;
  }
  return count;
});

// -- polling, one at a time

let abort = new AbortController();
let fetching: Promise<void> | null = null;
let again = false;
let tookMs = 0;

async function fetchSessions(): Promise<void> {
  const signal = abort.signal;
  const began = performance.now();
  try {
    const list = await get<SessionList>('/sessions', { usage: true, detail: true }, signal);
    const held = await get<{ tenants: Tenant[] }>('/tenants', {}, signal);
    if (signal.aborted) return;
    sessions.value = list.sessions;
    limits.value = { limit: list.limit, open_limit: list.open_limit, tenant_limit: list.tenant_limit };
    tenants.value = held.tenants;
    sessionsError.value = null;
  } catch (error) {
    if (!signal.aborted) sessionsError.value = error;
  }
  tookMs = performance.now() - began;
}

// Look now; while a look is under way, once more behind it.
export function refreshSessions(): Promise<void> {
  if (fetching) {
    again = true;
    return fetching;
  }
  fetching = fetchSessions().finally(() => {
    fetching = null;
    if (again) {
      again = false;
      void refreshSessions();
    }
  });
  return fetching;
}

export async function refreshPolicy(): Promise<void> {
  policy.value = await get<Policy>('/policy', {}, abort.signal);
}

// Every two seconds where that is cheap, slower where a look takes long, never unseen.
async function pollSessions(signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    if (!document.hidden) await refreshSessions();
    await pause(Math.min(30000, Math.max(2000, tookMs * 10)), signal);
  }
}

// -- the feed

function add(more: FeedEvent[]): void {
  const last = feed.value.at(-1)?.seq ?? 0;
  const fresh = more.filter((event) => event.seq > last);
  if (fresh.length) feed.value = [...feed.value, ...fresh].slice(-FEED_KEPT);
}

let looking: ReturnType<typeof setTimeout> | undefined;
function lookSoon(): void {
  clearTimeout(looking);
  looking = setTimeout(() => {
    if (signedIn.value) void refreshSessions();
  }, 150);
}

async function followFeed(signal: AbortSignal): Promise<void> {
  let after = '';
  while (!signal.aborted) {
    try {
      if (!after) {
        const { latest_seq } = await get<{ latest_seq: number }>('/events', { follow: false, after: '999999999999999999' }, signal);
        const before = await get<{ events: FeedEvent[] }>('/events', { follow: false, after: Math.max(0, latest_seq - FEED_BEFORE) }, signal);
        feed.value = [];
        add(before.events);
        after = String(Math.max(latest_seq, before.events.at(-1)?.seq ?? 0));
      }
      feedLive.value = true;
      for await (const event of events('/events', { after }, signal)) {
        if (event.id) after = event.id;
        if (event.event !== 'message') {
          // Of another store, or too far behind: what we have is not what it has.
          feed.value = [];
          continue;
        }
        const told: FeedEvent = JSON.parse(event.data);
        add([told]);
        if (told.op === 'policy') void refreshPolicy().catch(() => undefined);
        lookSoon();
      }
    } catch (error) {
      if (isAbort(error) || signal.aborted) break;
      if (error instanceof ApiError && error.status === 401) break;
    }
    feedLive.value = false;
    await pause(1500, signal);
  }
  feedLive.value = false;
}

setInterval(() => {
  if (!document.hidden) now.value = Date.now() / 1000;
}, 1000);
document.addEventListener('visibilitychange', () => {
  if (document.hidden || !signedIn.value) return;
  now.value = Date.now() / 1000;
  void refreshSessions();
});

effect(() => {
  if (!signedIn.value) {
    abort.abort();
    sessions.value = tenants.value = policy.value = null;
    feed.value = [];
    return;
  }
  untracked(() => {
    abort = new AbortController();
    void pollSessions(abort.signal);
    void followFeed(abort.signal);
    void refreshPolicy().catch(() => undefined);
  });
});

// The broker is back: what it knows may be other than what we showed.
let wasReachable = true;
effect(() => {
  if (reachable.value && !wasReachable && signedIn.value) lookSoon();
  wasReachable = reachable.value;
});
