// Files of a session or a stored workspace: a tree on the left, what is chosen on the right. Names are shown as text, whatever they are.
import type { ComponentChildren } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { events, isAbort, pause } from '../lib/api';
import * as files from '../lib/files';
import { bytes, plural, visible } from '../lib/format';
import type { Entry } from '../lib/types';
import { ask } from '../parts/dialog';
import { Icon } from '../parts/icons';
import { Menu, type MenuItem } from '../parts/menu';
import { Empty, ErrorBox, Field, Loading } from '../parts/small';
import { attempt, complain, say, transfer } from '../parts/toast';
import { Search } from './search';
import { Viewer } from './viewer';
import './session.css';

interface Folder {
  entries: Entry[];
  truncated: boolean;
}

interface Row {
  entry: Entry;
  depth: number;
}

const ICONS = { file: 'file', directory: 'folder', link: 'link', other: 'other' } as const;
const SETTLE_MS = 250;

// What a drop holds, folders walked, as paths below the place it fell on.
async function dropped(items: DataTransferItemList): Promise<[string, File][]> {
  const out: [string, File][] = [];
  const walk = async (entry: FileSystemEntry, below: string): Promise<void> => {
    const path = files.join(below, encodeURIComponent(entry.name));
    if (entry.isFile) {
      out.push([path, await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject))]);
      return;
    }
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) {
      const more = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (!more.length) return;
      for (const inner of more) await walk(inner, path);
    }
  };
  // All of them before the first wait: the list is empty once the event is over. What is not of a disk is a file at least.
  const found = [...items].filter((item) => item.kind === 'file').map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  for (const { entry, file } of found)
    if (entry) await walk(entry, '');
    else if (file) out.push([encodeURIComponent(file.name), file]);
  return out;
}

export const Files = ({ place, writable }: { place: files.Place; writable: boolean }) => {
  const [folders, setFolders] = useState<ReadonlyMap<string, Folder>>(new Map());
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set(['']));
  const [chosen, setChosen] = useState<Entry | null>(null);
  const [line, setLine] = useState<number | undefined>(undefined);
  const [error, setError] = useState<unknown>(null);
  const [searching, setSearching] = useState(false);
  const [over, setOver] = useState(false);
  const [dirty, setDirty] = useState(false);
  const picker = useRef<HTMLInputElement>(null);
  const abort = useMemo(() => new AbortController(), []);
  const loaded = useRef(folders);
  loaded.current = folders;

  const load = async (folder: string) => {
    try {
      const found = await files.list(place, folder, abort.signal);
      setFolders((was) => new Map(was).set(folder, { entries: found.entries, truncated: found.truncated }));
      if (!folder) setError(null);
    } catch (reason) {
      if (isAbort(reason)) return;
      if (!folder) setError(reason);
      else forget(folder);
    }
  };
  // A folder that is gone is not asked for any more.
  const forget = (folder: string) => setFolders((was) => (was.has(folder) ? new Map([...was].filter(([path]) => path !== folder && !path.startsWith(`${folder}/`))) : was));
  const toggle = (path: string) => {
    const next = new Set(open);
    if (next.delete(path)) return setOpen(next);
    next.add(path);
    setOpen(next);
    void load(path);
  };

  // What changes in the sandbox is looked at again, soon and once.
  useEffect(() => {
    const stale = new Set<string>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const mark = (folder: string) => {
      if (!loaded.current.has(folder)) return;
      stale.add(folder);
      timer ??= setTimeout(() => {
        timer = undefined;
        for (const path of stale) if (loaded.current.has(path)) void load(path);
        stale.clear();
      }, SETTLE_MS);
    };
    const follow = async () => {
      while (!abort.signal.aborted) {
        try {
          for await (const event of events(files.watchAddress(place), {}, abort.signal)) {
            if (event.event === 'ready' || event.event === 'lost') for (const path of loaded.current.keys()) mark(path);
            else if (event.event !== 'gone') {
              const path: string = JSON.parse(event.data).path_encoded;
              if (event.event === 'deleted' || event.event === 'moved_from') forget(path);
              mark(files.parentOf(path));
            }
          }
        } catch {
          // It comes back, or the list itself says why not.
        }
        await pause(3000, abort.signal);
      }
    };
    void load('');
    if (place.kind === 'sessions') void follow();
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, []);

  const rows: Row[] = [];
  const collect = (folder: string, depth: number) => {
    for (const entry of folders.get(folder)?.entries ?? []) {
      rows.push({ entry, depth });
      if (entry.kind === 'directory' && open.has(entry.path_encoded)) collect(entry.path_encoded, depth + 1);
    }
  };
  collect('', 1);
  const root = folders.get('');
  // Where new things go: the chosen folder, or the one of the chosen file.
  const here = !chosen ? '' : chosen.kind === 'directory' ? chosen.path_encoded : files.parentOf(chosen.path_encoded);
  const hereName = !chosen ? 'the workspace' : chosen.kind === 'directory' ? chosen.path : files.parentOf(chosen.path) || 'the workspace';

  const choose = (entry: Entry | null, at?: number) => {
    const change = () => {
      setDirty(false);
      setChosen(entry);
      setLine(at);
    };
    if (!dirty || entry?.path_encoded === chosen?.path_encoded) return change();
    ask({ title: 'Leave without saving?', body: <p>What you changed in {chosen && files.nameOf(chosen)} is lost.</p>, action: 'Leave', danger: true, work: async () => change() });
  };

  const upload = async (list: [string, File][]) => {
    let done = 0;
    for (const [path, file] of list) {
      try {
        await transfer(`Uploading ${file.name}${list.length > 1 ? ` (${done + 1} of ${list.length})` : ''}`, (signal, progress) => files.write(place, files.join(here, path), file, signal, progress));
        done++;
      } catch (reason) {
        if (isAbort(reason)) break;
        complain(reason, `Uploading ${file.name}`);
      }
    }
    if (done) say(`${plural(done, 'file')} uploaded to ${hereName}.`);
    await load(here);
  };
  const fetchTo = (path: string, name: string, folder: boolean) =>
    void transfer(`Downloading ${name}`, (signal, progress) => files.download(place, path, name, folder, signal, progress)).catch((reason) => complain(reason, `Downloading ${name}`));

  const askName = (title: string, label: string, value: string, action: string, work: (name: string) => Promise<void>) =>
    ask({
      title,
      body: (
        <Field label={label}>
          <input name="name" required value={value} autocomplete="off" spellcheck={false} />
        </Field>
      ),
      action,
      work: (form) => work(String(form.get('name'))),
    });
  const newFile = () =>
    askName('New file', `Name, in ${hereName}`, '', 'Create', async (name) => {
      const path = files.join(here, files.encodePath(name));
      await files.write(place, path, '');
      await load(here);
      setChosen({ path: decodeURIComponent(path), path_encoded: path, kind: 'file', mode: '', size: 0, modified_at: null });
    });
  const newFolder = () =>
    askName('New folder', `Name, in ${hereName}`, '', 'Create', async (name) => {
      await files.makeFolder(place, files.join(hereName === 'the workspace' ? '' : hereName, name));
      await load(here);
    });
  const rename = (entry: Entry) =>
    askName(`Rename ${visible(files.nameOf(entry))}`, 'New name', files.nameOf(entry), 'Rename', async (name) => {
      const folder = files.parentOf(entry.path_encoded);
      await files.move(place, entry.path_encoded, files.join(folder, files.encodePath(name)));
      if (chosen?.path_encoded === entry.path_encoded) setChosen(null);
      await load(folder);
    });
  const remove = (entry: Entry) =>
    ask({
      title: `Delete ${visible(files.nameOf(entry))}?`,
      body: <p>{entry.kind === 'directory' ? 'The folder and all that is in it are removed for good.' : 'The file is removed for good.'}</p>,
      action: 'Delete',
      danger: true,
      work: async () => {
        await files.remove(place, entry.path_encoded);
        forget(entry.path_encoded);
        if (chosen && (chosen.path_encoded === entry.path_encoded || chosen.path_encoded.startsWith(`${entry.path_encoded}/`))) {
          setDirty(false);
          setChosen(null);
        }
        await load(files.parentOf(entry.path_encoded));
      },
    });
  const actionsOn = (entry: Entry): MenuItem[] => [
    ...(entry.kind === 'file' ? [{ label: 'Download', action: () => fetchTo(entry.path_encoded, files.nameOf(entry), false) }] : []),
    ...(entry.kind === 'directory' ? [{ label: 'Download as zip', action: () => fetchTo(entry.path_encoded, files.nameOf(entry), true) }] : []),
    ...(writable
      ? [
          { label: 'Rename…', action: () => rename(entry) },
          { label: 'Delete…', danger: true, action: () => remove(entry) },
        ]
      : []),
  ];
  const general: MenuItem[] = [
    ...(writable
      ? [
          { label: 'New file…', action: newFile },
          { label: 'New folder…', action: newFolder },
          { label: 'Upload files…', action: () => picker.current?.click() },
        ]
      : []),
    { label: 'Download all as zip', action: () => fetchTo('', place.id, true) },
    { label: 'Refresh', action: () => void attempt(async () => Promise.all([...folders.keys()].map(load))) },
  ];

  // The tree's own keys, as people who use trees expect them.
  const keys = (event: KeyboardEvent, row: Row, index: number) => {
    const items = [...(event.currentTarget as HTMLElement).parentElement!.querySelectorAll<HTMLElement>('[role=treeitem]')];
    const isOpen = open.has(row.entry.path_encoded);
    const folder = row.entry.kind === 'directory';
    const focus = (to: number) => items[to]?.focus();
    if (event.key === 'ArrowDown') focus(index + 1);
    else if (event.key === 'ArrowUp') focus(index - 1);
    else if (event.key === 'Home') focus(0);
    else if (event.key === 'End') focus(items.length - 1);
    else if (event.key === 'ArrowRight' && folder) isOpen ? focus(index + 1) : toggle(row.entry.path_encoded);
    else if (event.key === 'ArrowLeft' && folder && isOpen) toggle(row.entry.path_encoded);
    else if (event.key === 'ArrowLeft') focus(rows.findLastIndex((other, i) => i < index && other.depth < row.depth));
    else if (event.key === 'Enter' || event.key === ' ') press(row.entry);
    else if (event.key === 'F2' && writable) rename(row.entry);
    else if (event.key === 'Delete' && writable) remove(row.entry);
    else return;
    event.preventDefault();
  };
  const press = (entry: Entry) => {
    choose(entry);
    if (entry.kind === 'directory') toggle(entry.path_encoded);
  };

  let detail: ComponentChildren;
  if (searching) detail = <Search place={place} onClose={() => setSearching(false)} onOpen={(entry, at) => { setSearching(false); choose(entry, at); }} />;
  else if (chosen && chosen.kind === 'file') detail = <Viewer key={chosen.path_encoded} place={place} entry={chosen} writable={writable} line={line} onDirty={setDirty} onDownload={() => fetchTo(chosen.path_encoded, files.nameOf(chosen), false)} />;
  else
    detail = (
      <Empty title={chosen ? visible(files.nameOf(chosen)) : 'No file is open'} icon={chosen ? ICONS[chosen.kind] : 'file'}>
        {chosen?.kind === 'link' ? 'A link. Links are not followed from here: what it leads to may be outside.' : chosen?.kind === 'other' ? 'A FIFO, socket or device: it has no content to show.' : writable ? 'Choose one to read or edit it, or drop files here to upload them.' : 'Choose one to read it.'}
      </Empty>
    );
  return (
    <div
      class={`split ${over ? 'drop' : ''}`}
      onDragOver={(event) => {
        if (!writable || !event.dataTransfer?.types.includes('Files')) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => event.currentTarget === event.target && setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        if (writable && event.dataTransfer) void dropped(event.dataTransfer.items).then(upload, complain);
      }}
    >
      <section class="pane" aria-label="Files">
        <div class="pane-head">
          <span class="grow quiet clip" title={`New files go to ${hereName}`}>{root ? plural(root.entries.length, 'entry', 'entries') : ''}</span>
          <button type="button" class="bare" aria-pressed={searching} onClick={() => setSearching(!searching)}>
            <Icon name="search" /> Search
          </button>
          <Menu label="Actions on the workspace" items={general} text="Actions" />
          <input ref={picker} type="file" multiple hidden aria-label="Files to upload" onChange={(event) => {
            const list = [...(event.currentTarget.files ?? [])].map((file): [string, File] => [encodeURIComponent(file.name), file]);
            event.currentTarget.value = '';
            void upload(list);
          }} />
        </div>
        <div class="pane-body">
          {error !== null && <ErrorBox error={error} retry={() => void load('')} />}
          {!root && error === null && <Loading what="files" />}
          {root && !root.entries.length && (
            <Empty title="No files yet" icon="folder">
              {writable ? 'What programs in the sandbox write below its work dir shows up here. Drop files to upload them.' : 'Nothing was written here.'}
            </Empty>
          )}
          {rows.length > 0 && (
            <div class="tree" role="tree" aria-label="Files of the workspace">
              {rows.map((row, index) => {
                const { entry, depth } = row;
                const folder = entry.kind === 'directory';
                return (
                  <div
                    key={entry.path_encoded}
                    role="treeitem"
                    tabIndex={entry.path_encoded === (chosen?.path_encoded ?? rows[0]?.entry.path_encoded) || (index === 0 && !rows.some((other) => other.entry.path_encoded === chosen?.path_encoded)) ? 0 : -1}
                    aria-level={depth}
                    aria-selected={entry.path_encoded === chosen?.path_encoded}
                    aria-expanded={folder ? open.has(entry.path_encoded) : undefined}
                    style={{ paddingLeft: `${depth * 0.95 - 0.4}rem` }}
                    onClick={() => press(entry)}
                    onKeyDown={(event) => keys(event, row, index)}
                  >
                    <span class="twist">{folder && <Icon name="chevron" />}</span>
                    <Icon name={ICONS[entry.kind]} />
                    <span class="name" title={visible(entry.path)}>{visible(files.nameOf(entry))}</span>
                    <span class="size">{entry.kind === 'file' ? bytes(entry.size) : ''}</span>
                  </div>
                );
              })}
            </div>
          )}
          {[...folders].some(([path, folder]) => folder.truncated && (path === '' || open.has(path))) && <p class="loading">Only the first {files.LIST_MAX} entries of a folder are listed; search finds the rest.</p>}
        </div>
      </section>
      <section class="pane" aria-label="Content">
        {chosen && !searching && (
          <div class="pane-head">
            <span class="grow mono clip" title={visible(chosen.path)}>{visible(chosen.path)}</span>
            <span id="viewer-actions" />
            {actionsOn(chosen).length > 0 && <Menu label={`Actions on ${visible(files.nameOf(chosen))}`} items={actionsOn(chosen)} />}
          </div>
        )}
        {detail}
      </section>
    </div>
  );
};
