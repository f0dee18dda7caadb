// What is wrong, in the order of how much it hurts. Each says what to do.
import { computed, signal } from '@preact/signals';
import { isAway } from './api';
import { bytes, number, plural } from './format';
import { counts, feed, limits, now, sessions, sessionsError, tenants } from './state';

export interface Problem {
  level: 'bad' | 'warn';
  text: string;
  todo: string;
  view?: [string, string?];
}

const RECENT_S = 600;

// Of the readiness route and the like; set by whoever asks it.
export const reported = signal<Problem[]>([]);

function ceiling(list: Problem[], used: number, limit: number | null, what: string, setting: string): void {
  if (limit === null || used < limit * 0.9) return;
  const full = used >= limit;
  list.push({
    level: full ? 'bad' : 'warn',
    text: `${number(used)} of ${number(limit)} ${what}`,
    todo: `${full ? 'The next opening is refused, or puts another to sleep' : 'Nearly full'}: close or hibernate sessions, or raise ${setting} under Policy.`,
    view: ['sessions'],
  });
}

export const problems = computed<Problem[]>(() => {
  const list: Problem[] = [...reported.value];
  const all = sessions.value;
  if (sessionsError.value && !isAway(sessionsError.value)) list.push({ level: 'bad', text: 'The list of sessions could not be read.', todo: 'The page keeps trying; see the broker’s log.' });
  if (!all) return list;
  ceiling(list, counts.value.running + counts.value.frozen + counts.value.dead, limits.value.limit, 'places for live sandboxes are taken', 'max_sessions');
  ceiling(list, all.length, limits.value.open_limit, 'sessions are open', 'max_open_sessions');
  if (counts.value.dead) list.push({ level: 'warn', text: `${plural(counts.value.dead, 'session')} with a sandbox that died`, todo: 'The next command heals it; wake it to do so now.', view: ['sessions'] });
  const over = all.filter((session) => session.over_quota);
  if (over.length) list.push({ level: 'bad', text: `${plural(over.length, 'session')} over the disk quota`, todo: 'Remove files, or raise the quota: nothing runs in it until then.', view: ['sessions', over.length === 1 ? over[0]!.session_id : ''] });
  for (const tenant of tenants.value ?? []) {
    if (tenant.max_disk_bytes !== null && (tenant.disk_bytes ?? 0) >= tenant.max_disk_bytes * 0.9)
      list.push({ level: 'warn', text: `Tenant ${tenant.tenant} holds ${bytes(tenant.disk_bytes)} of ${bytes(tenant.max_disk_bytes)}`, todo: 'Purge workspaces of it, or raise its ceiling under Policy.', view: ['policy'] });
    if (tenant.max_open_sessions !== null && tenant.open_sessions >= tenant.max_open_sessions)
      list.push({ level: 'warn', text: `Tenant ${tenant.tenant} has all of its ${number(tenant.max_open_sessions)} sessions open`, todo: 'Close some, or raise its ceiling under Policy.', view: ['policy'] });
    if (tenant.max_resident_sessions !== null && tenant.resident_sessions >= tenant.max_resident_sessions)
      list.push({ level: 'warn', text: `Tenant ${tenant.tenant} has all of its ${number(tenant.max_resident_sessions)} live sandboxes`, todo: 'Put some to sleep, or raise its ceiling under Policy.', view: ['policy'] });
  }
  const recent = feed.value.filter((event) => event.at > now.value - RECENT_S);
  const refused = recent.filter((event) => event.op === 'refused');
  if (refused.length) list.push({ level: 'bad', text: `${plural(refused.length, 'opening')} refused in the last 10 minutes`, todo: `Last: ${refused.at(-1)!.detail}`, view: ['events'] });
  const died = recent.filter((event) => event.op === 'died');
  if (died.length) list.push({ level: 'warn', text: `${plural(died.length, 'sandbox', 'sandboxes')} died in the last 10 minutes`, todo: 'Often memory: compare use and limit of the session.', view: ['events'] });
  return list;
});
