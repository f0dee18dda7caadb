// One look: how full, who uses it, what is wrong.
import { useMemo } from 'preact/hooks';
import { reachable } from '../lib/api';
import { bytes, duration, exactTime, milliseconds, number, opWords, percent, plural } from '../lib/format';
import { problems } from '../lib/problems';
import { hrefTo } from '../lib/router';
import { counts, feed, limits, now, sessions, sessionsError, tenants } from '../lib/state';
import { samples, stats, workspaceDisk } from '../lib/stats';
import type { Session } from '../lib/types';
import { askOpen } from '../parts/actions';
import { Icon } from '../parts/icons';
import { lazy } from '../parts/lazy';
import { Ago, Empty, Facts, Loading, Meter, Scroll } from '../parts/small';
import './overview.css';

const Chart = lazy('charts', async () => (await import('../parts/chart')).Chart);

const TOP = 8;
const BINS = 60;

const Wrong = () => {
  const list = problems.value;
  if (!sessions.value && !sessionsError.value) return <Loading what="the state of things" />;
  // That it is away is said above; what it would say now is not known.
  if (!list.length && !reachable.value) return null;
  if (!list.length)
    return (
      <div class="notice notice-good" role="status">
        <Icon name="good" />
        <p>Nothing is wrong.</p>
      </div>
    );
  return (
    <ul class="wrong" aria-label="What is wrong">
      {list.map((problem) => (
        <li key={problem.text} class={`notice notice-${problem.level}`}>
          <Icon name="warning" />
          <div>
            <p>{problem.text}</p>
            <p class="quiet">{problem.todo}</p>
          </div>
          {problem.view && (
            <a class="button" href={hrefTo(problem.view[0], problem.view[1])}>
              Look
            </a>
          )}
        </li>
      ))}
    </ul>
  );
};

const Full = () => {
  const count = counts.value;
  const all = sessions.value;
  const figures = stats.value;
  const disk = figures ? workspaceDisk(figures) : undefined;
  const used = disk?.size_bytes != null && disk.free_bytes != null ? disk.size_bytes - disk.free_bytes : null;
  const memory = (all ?? []).reduce((sum, session) => sum + (session.usage?.memory_bytes ?? 0), 0);
  const ready = figures?.pool.reduce((sum, pool) => sum + pool.ready, 0) ?? 0;
  const wanted = figures?.pool.reduce((sum, pool) => sum + pool.wanted, 0) ?? 0;
  return (
    <section class="card" aria-labelledby="full">
      <h2 id="full">How full</h2>
      <div class="fullness">
        <Meter label="Live sandboxes" used={all && count.running + count.frozen + count.dead} limit={limits.value.limit} />
        <Meter label="Open sessions" used={all?.length ?? null} limit={limits.value.open_limit} />
        {figures && <Meter label="Commands at once" used={figures.runs.running} limit={figures.runs.running_limit} />}
        {disk && <Meter label="Disk" used={used} limit={disk.size_bytes} text={`${bytes(used)} of ${bytes(disk.size_bytes)}`} />}
        {wanted > 0 && <Meter label="Started ahead, in use" used={wanted - ready} limit={wanted} text={`${ready} of ${wanted} ready`} />}
      </div>
      <p class="quiet">
        {number(count.running)} running, {count.frozen ? `${number(count.frozen)} frozen, ` : ''}
        {number(count.asleep)} asleep; {plural(count.commands, 'command')} under way; {bytes(memory)} of memory in use.
      </p>
    </section>
  );
};

interface User {
  name: string;
  open: number;
  live: number;
  commands: number;
  memory: number;
  disk: number | null;
}

function usersOf(all: Session[]): User[] {
  const by = new Map<string, User>();
  for (const session of all) {
    const name = session.tenant ?? '';
    const user = by.get(name) ?? { name, open: 0, live: 0, commands: 0, memory: 0, disk: tenants.value?.find((tenant) => tenant.tenant === name)?.disk_bytes ?? null };
    by.set(name, user);
    user.open++;
    if (session.state === 'running') user.live++;
    user.commands += session.running_commands ?? 0;
    user.memory += session.usage?.memory_bytes ?? 0;
  }
  return [...by.values()].sort((a, b) => b.live - a.live || b.open - a.open || (a.name < b.name ? -1 : 1));
}

const Who = () => {
  const users = useMemo(() => usersOf(sessions.value ?? []), [sessions.value, tenants.value]);
  return (
    <section class="card" aria-labelledby="who">
      <div class="card-head">
        <h2 id="who">Who uses it</h2>
        <a href={hrefTo('sessions')}>All sessions</a>
      </div>
      {users.length ? (
        <Scroll label="Table of tenants">
          <table class="plain-table">
            <thead>
              <tr>
                <th scope="col">Tenant</th>
                <th scope="col" class="end">Live</th>
                <th scope="col" class="end">Open</th>
                <th scope="col" class="end">Commands</th>
                <th scope="col" class="end">Memory</th>
                <th scope="col" class="end">Disk</th>
              </tr>
            </thead>
            <tbody>
              {users.slice(0, TOP).map((user) => (
                <tr key={user.name}>
                  <th scope="row">{user.name || <span class="quiet">no tenant</span>}</th>
                  <td class="end">{number(user.live)}</td>
                  <td class="end">{number(user.open)}</td>
                  <td class="end">{number(user.commands)}</td>
                  <td class="end">{bytes(user.memory)}</td>
                  <td class="end">{bytes(user.disk)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      ) : (
        <Empty title="Nobody uses it yet" icon="sessions">
          <p>Sessions that applications open are counted here, by tenant.</p>
          <p>
            <button type="button" onClick={askOpen}>
              Open a session
            </button>
          </p>
        </Empty>
      )}
      {users.length > TOP && <p class="quiet">and {plural(users.length - TOP, 'tenant')} more</p>}
    </section>
  );
};

const Busiest = () => {
  const all = (sessions.value ?? []).filter((session) => session.usage).sort((a, b) => (b.usage!.cpu_percent ?? 0) - (a.usage!.cpu_percent ?? 0) || (b.usage!.memory_bytes ?? 0) - (a.usage!.memory_bytes ?? 0));
  if (!all.length) return null;
  return (
    <section class="card" aria-labelledby="busiest">
      <h2 id="busiest">Busiest</h2>
      <table class="plain-table">
        <thead>
          <tr>
            <th scope="col">Session</th>
            <th scope="col" class="end">CPU</th>
            <th scope="col" class="end">Memory</th>
          </tr>
        </thead>
        <tbody>
          {all.slice(0, TOP).map((session) => (
            <tr key={session.session_id}>
              <th scope="row">
                <a class="mono" href={hrefTo('sessions', session.session_id, 'info')}>
                  {session.session_id}
                </a>
              </th>
              <td class="end">{percent(session.usage!.cpu_percent)}</td>
              <td class="end">{bytes(session.usage!.memory_bytes)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
};

const Health = () => {
  const figures = stats.value;
  if (!figures) return null;
  return (
    <section class="card" aria-labelledby="health">
      <h2 id="health">Health</h2>
      <Facts
        rows={[
          ...Object.entries(figures.checks).map(([name, check]): [string, preact.ComponentChild] => [
            name[0]!.toUpperCase() + name.slice(1),
            <span class={`state ${check.ok ? '' : 'state-bad'}`}>
              <i aria-hidden="true" />
              {check.detail || (check.ok ? 'good' : 'not ready')}
            </span>,
          ]),
          ['Engine’s answers', `${number(figures.engine.calls)} calls, ${plural(figures.engine.errors, 'error')}`],
          ['Requests', `${number(figures.requests.durations.count)} answered, ${number(figures.requests.by_status['5xx'] ?? 0)} with 5xx`],
          ['Broker', `berthd ${figures.version}`],
          ['Up', <span title={exactTime(figures.started_at)}>{duration(now.value - figures.started_at)}</span>],
          ['Its memory', bytes(figures.process.resident_bytes)],
          ['Connections', number(figures.requests.connections)],
        ]}
      />
    </section>
  );
};

const ChartCard = ({ title, children }: { title: string; children: preact.ComponentChildren }) => (
  <section class="card">
    <h2>{title}</h2>
    {children}
  </section>
);

// A minute without any has no bar.
const shown = (values: number[]): (number | null)[] => values.map((value) => value || null);

// Of the last hour, a bar a minute: from the feed, so that it is there at once.
const Hour = () => {
  const end = Math.floor(now.value / 60);
  const bins = useMemo(() => {
    const opened = new Array<number>(BINS).fill(0);
    const wrong = new Array<number>(BINS).fill(0);
    for (const event of feed.value) {
      const at = BINS - 1 - (end - Math.floor(event.at / 60));
      if (at < 0 || at >= BINS) continue;
      if (event.op === 'opened') opened[at]!++;
      else if (event.op === 'refused' || event.op === 'died') wrong[at]!++;
    }
    return { times: opened.map((_, i) => (end - BINS + 1 + i) * 60), opened, wrong };
  }, [feed.value, end]);
  return (
    <ChartCard title="Openings a minute, last hour">
      <Chart
        label="Openings a minute"
        times={bins.times}
        series={[
          { label: 'opened', values: shown(bins.opened), colour: '--accent', bars: true },
          { label: 'refused or died', values: shown(bins.wrong), colour: '--bad', bars: true },
        ]}
        format={(value) => (value === null ? '–' : String(Math.round(value * 10) / 10))}
      />
    </ChartCard>
  );
};

const seconds = (value: number | null): string => (value === null ? '–' : milliseconds(value * 1000));
const count = (value: number | null): string => (value === null ? '–' : String(Math.round(value * 10) / 10));

const Charts = () => {
  const list = samples.value;
  const times = list.map((sample) => sample.at);
  const of = <K extends keyof (typeof list)[number]>(key: K) => list.map((sample) => sample[key]);
  return (
    <div class="cards">
      <Hour />
      {list.length > 1 && (
        <>
          <ChartCard title="Sessions">
            <Chart label="Sessions" times={times} series={[{ label: 'open', values: of('open'), colour: '--quiet' }, { label: 'live', values: of('live'), colour: '--accent' }]} format={count} />
          </ChartCard>
          <ChartCard title="Commands a minute">
            <Chart label="Commands a minute" times={times} series={[{ label: 'ended', values: of('runsPerMinute'), colour: '--accent' }, { label: 'running', values: of('commands'), colour: '--good' }]} format={count} />
          </ChartCard>
          <ChartCard title="Latency">
            <Chart
              label="Latency"
              times={times}
              series={[
                { label: 'command, median', values: of('runP50'), colour: '--accent' },
                { label: 'command, 95 %', values: of('runP95'), colour: '--ice' },
                { label: 'opening, 95 %', values: of('openP95'), colour: '--warn' },
              ]}
              format={seconds}
            />
          </ChartCard>
          {list.some((sample) => sample.poolWanted > 0) && (
            <ChartCard title="Started ahead">
              <Chart label="Started ahead" times={times} series={[{ label: 'wanted', values: of('poolWanted'), colour: '--quiet' }, { label: 'ready', values: of('poolReady'), colour: '--good' }]} format={count} />
            </ChartCard>
          )}
          <ChartCard title="Disk in use">
            <Chart label="Disk in use" times={times} series={[{ label: 'used', values: of('diskUsed'), colour: '--accent' }]} format={(value) => bytes(value)} />
          </ChartCard>
        </>
      )}
    </div>
  );
};

export const Overview = () => (
  <div class="view">
    <div class="view-head">
      <h1>Overview</h1>
      {feed.value.length > 0 && (
        <span class="quiet">
          Last event <Ago at={feed.value.at(-1)!.at} />: {opWords(feed.value.at(-1)!.op)} {feed.value.at(-1)!.session ?? feed.value.at(-1)!.tenant}
        </span>
      )}
    </div>
    <Wrong />
    <div class="cards">
      <Full />
      <Who />
    </div>
    <div class="cards">
      <Busiest />
      <Health />
    </div>
    <Charts />
    {samples.value.length > 1 && <p class="quiet">Charts but the first begin when this page was opened, and hold twelve hours.</p>}
  </div>
);
