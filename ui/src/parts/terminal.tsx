// A terminal in a sandbox: xterm.js on the broker's WebSocket (docs/wire.md, Terminals). What it prints is drawn and nothing else: links do
// nothing, titles and clipboards are not taken.
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { useEffect, useRef, useState } from 'preact/hooks';
import { currentToken } from '../lib/api';
import { styledDocument, withStyledDocument } from '../lib/sheets';
import './terminal.css';

const PROTOCOL = 'berth.terminal.v1';
const FIRST_RETRY_MS = 400;
const LONGEST_RETRY_MS = 5000;
const THEME = { background: '#10151a', foreground: '#d8dee5', cursor: '#5cc3d8', selectionBackground: '#2f5560' };
const KEYS: [string, string][] = [['Esc', '\x1b'], ['Tab', '\t'], ['Ctrl-C', '\x03'], ['Ctrl-D', '\x04'], ['↑', '\x1b[A'], ['↓', '\x1b[B'], ['←', '\x1b[D'], ['→', '\x1b[C']];

type Phase = { name: 'connecting' } | { name: 'live' } | { name: 'broken'; why: string } | { name: 'ended'; why: string };

interface Props {
  session: string;
  // The run to enter; none: one is started, and named.
  run: string | null;
  onStarted: (run: string) => void;
  onEnded: () => void;
}

interface Told {
  type: string;
  run_id?: string;
  entered?: boolean;
  bytes?: number;
  exit_code?: number | null;
  signal?: string | number | null;
  cause?: string;
}

const base64url = (text: string): string => btoa(text).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');

const endOf = (told: Told): string => {
  if (told.type === 'lost') return `The shell was ended: ${told.cause || 'its end was not seen'}.`;
  return told.signal ? `The shell was ended by signal ${told.signal}.` : `The shell ended with status ${told.exit_code}.`;
};

// Why a socket was closed, where trying again is of no use; otherwise null.
function finality(event: CloseEvent): string | null {
  if (event.code === 1000) return 'The shell has ended.';
  if (event.code === 4409) return 'Somebody else entered this terminal and has it now.';
  if (event.code >= 4400 && event.code < 4500 && event.code !== 4408 && event.code !== 4429) return event.reason || `The broker refused (${event.code - 4000}).`;
  return null;
}

class Connection {
  private socket: WebSocket | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private retryMs = FIRST_RETRY_MS;
  private replaying = false;
  private ending: string | null = null;
  private over = false;

  constructor(
    private readonly terminal: Terminal,
    private readonly session: string,
    private run: string | null,
    private readonly onPhase: (phase: Phase) => void,
    private readonly onStarted: (run: string) => void,
  ) {
    terminal.onData((data) => this.type(data));
    terminal.onBinary((data) => this.sendBytes(Uint8Array.from(data, (c) => c.charCodeAt(0))));
    terminal.onResize(({ rows, cols }) => this.sendText({ type: 'resize', rows, cols }));
  }

  open(): void {
    const { rows, cols } = this.terminal;
    const socket = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/sessions/${encodeURIComponent(this.session)}/terminal`, [PROTOCOL, `berth.token.${base64url(currentToken())}`]);
    socket.binaryType = 'arraybuffer';
    socket.onopen = () => this.sendText(this.run ? { type: 'enter', run_id: this.run, rows, cols } : { type: 'start', rows, cols });
    socket.onmessage = (event) => (typeof event.data === 'string' ? this.hear(JSON.parse(event.data)) : this.terminal.write(new Uint8Array(event.data)));
    socket.onclose = (event) => this.closed(event);
    this.socket = socket;
  }

  private hear(told: Told): void {
    if (told.type === 'started' && told.run_id) {
      this.run = told.run_id;
      this.retryMs = FIRST_RETRY_MS;
      this.onStarted(told.run_id);
      // What is typed while old output is shown goes nowhere: connected is who has seen all of it.
      if (!told.entered) this.onPhase({ name: 'live' });
    } else if (told.type === 'replay') {
      this.replaying = true;
      this.terminal.reset();
    } else if (told.type === 'live') {
      // Behind what was written before: only then is the old output done with.
      this.terminal.write('', () => {
        this.replaying = false;
        if (this.socket) this.onPhase({ name: 'live' });
      });
    } else if (told.type === 'dropped') {
      this.terminal.write(`\r\n\x1b[2m[${told.bytes} bytes are missing here]\x1b[0m\r\n`);
    } else if (told.type === 'exit' || told.type === 'lost') {
      this.ending = endOf(told);
    }
  }

  private closed(event: CloseEvent): void {
    this.socket = null;
    if (this.over) return;
    const final = this.ending ?? finality(event);
    if (final) return this.onPhase({ name: 'ended', why: final });
    this.onPhase({ name: 'broken', why: event.code === 1001 ? 'The broker is restarting' : event.code === 4429 ? event.reason || 'The broker is full' : 'The connection broke' });
    this.retry = setTimeout(() => this.open(), this.retryMs);
    this.retryMs = Math.min(LONGEST_RETRY_MS, this.retryMs * 2);
  }

  // Answers of the terminal to old output are nobody's: programs that asked are past it.
  type(data: string): void {
    if (!this.replaying) this.sendBytes(new TextEncoder().encode(data));
  }
  private sendBytes(data: Uint8Array<ArrayBuffer>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(data);
  }
  sendText(message: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
  close(): void {
    this.over = true;
    clearTimeout(this.retry);
    this.socket?.close(1000);
  }
}

const READER_KEY = 'berth.screenreader';

export const TerminalPane = ({ session, run, onStarted, onEnded }: Props) => {
  const box = useRef<HTMLDivElement>(null);
  const connection = useRef<Connection | null>(null);
  const terminal = useRef<Terminal | null>(null);
  const [phase, setPhase] = useState<Phase>({ name: 'connecting' });
  const [reader, setReader] = useState(localStorage.getItem(READER_KEY) === 'on');

  useEffect(() => {
    const made = new Terminal({
      documentOverride: styledDocument,
      fontFamily: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
      fontSize: 13,
      scrollback: 10000,
      theme: THEME,
      screenReaderMode: reader,
      linkHandler: { activate: () => undefined },
    });
    const fit = new FitAddon();
    made.loadAddon(fit);
    withStyledDocument(() => made.open(box.current!));
    made.textarea?.setAttribute('aria-label', `Terminal of ${session}. Shift+F6 leaves it.`);
    made.attachCustomKeyEventHandler((event) => {
      if (event.key !== 'F6' || !event.shiftKey) return true;
      if (event.type === 'keydown') document.querySelector<HTMLElement>('.terminal-bar button')?.focus();
      event.preventDefault();
      return false;
    });
    fit.fit();
    const watch = new ResizeObserver(() => fit.fit());
    watch.observe(box.current!);
    const opened = new Connection(made, session, run, setPhase, onStarted);
    opened.open();
    made.focus();
    terminal.current = made;
    connection.current = opened;
    return () => {
      watch.disconnect();
      opened.close();
      made.dispose();
    };
  }, [session]);
  useEffect(() => {
    if (terminal.current) terminal.current.options.screenReaderMode = reader;
    localStorage.setItem(READER_KEY, reader ? 'on' : 'off');
  }, [reader]);

  return (
    <div class="terminal-pane">
      <div class="toolbar terminal-bar">
        <span role="status" class={`state ${phase.name === 'live' ? '' : phase.name === 'broken' ? 'state-bad' : 'state-asleep'}`}>
          <i aria-hidden="true" />
          {phase.name === 'live' ? 'Connected' : phase.name === 'connecting' ? 'Connecting' : phase.name === 'broken' ? `${phase.why}; trying again` : 'Ended'}
        </span>
        <label class="check">
          <input type="checkbox" checked={reader} onChange={(event) => setReader(event.currentTarget.checked)} /> Screen reader
        </label>
        <button type="button" class="end" disabled={phase.name !== 'live'} onClick={() => connection.current?.sendText({ type: 'stop' })}>
          End this shell
        </button>
      </div>
      <div class="terminal-frame">
        <div ref={box} class="terminal-screen" />
        {phase.name === 'ended' && (
          <div class="terminal-over" role="status">
            <span>{phase.why}</span>
            <button type="button" onClick={onEnded}>
              Back to terminals
            </button>
          </div>
        )}
      </div>
      <div class="terminal-keys" role="group" aria-label="Keys">
        {KEYS.map(([name, data]) => (
          <button
            key={name}
            type="button"
            onClick={() => {
              connection.current?.type(data);
              terminal.current?.focus();
            }}
          >
            {name}
          </button>
        ))}
      </div>
    </div>
  );
};
