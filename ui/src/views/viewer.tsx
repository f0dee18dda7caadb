// One file: text in the editor, an image as an image, anything else by its size.
import { useEffect, useRef, useState } from 'preact/hooks';
import { createPortal } from 'preact/compat';
import { isAbort } from '../lib/api';
import * as files from '../lib/files';
import { bytes } from '../lib/format';
import type { Entry } from '../lib/types';
import { ask } from '../parts/dialog';
import type { EditorHandle } from '../parts/editor';
import { lazy } from '../parts/lazy';
import { Empty, ErrorBox, Loading, WorkButton } from '../parts/small';
import { complain, say } from '../parts/toast';

const Editor = lazy('editor', async () => (await import('../parts/editor')).Editor);

const TEXT_MAX_BYTES = 2 * 1024 * 1024;
const IMAGE_MAX_BYTES = 20 * 1024 * 1024;
// Drawn as images only: nothing in them is run or fetched.
const IMAGES = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)\b/;

type Shown =
  | { kind: 'text'; text: string; etag: string; whole: boolean; size: number }
  | { kind: 'image'; url: string }
  | { kind: 'binary'; type: string; size: number };

// Whole characters only; null: it is no text.
function decode(content: files.Content): string | null {
  const whole = content.bytes.length >= content.size;
  if (content.bytes.includes(0)) return null;
  for (let cut = 0; cut < (whole ? 1 : 4); cut++) {
    try {
      return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(content.bytes.subarray(0, content.bytes.length - cut));
    } catch {
      // Cut inside a character, perhaps.
    }
  }
  return null;
}

async function look(place: files.Place, entry: Entry, signal: AbortSignal): Promise<Shown> {
  const content = await files.read(place, entry.path_encoded, entry.size, TEXT_MAX_BYTES, signal);
  if (IMAGES.test(content.type) && content.size <= IMAGE_MAX_BYTES && content.size > 0) {
    const image = content.bytes.length < content.size ? await files.read(place, entry.path_encoded, entry.size, IMAGE_MAX_BYTES, signal) : content;
    return { kind: 'image', url: URL.createObjectURL(new Blob([image.bytes], { type: content.type.split(';')[0] })) };
  }
  const text = decode(content);
  if (text === null) return { kind: 'binary', type: content.type, size: content.size };
  return { kind: 'text', text, etag: content.etag, whole: content.bytes.length >= content.size, size: content.size };
}

interface Props {
  place: files.Place;
  entry: Entry;
  writable: boolean;
  line?: number;
  onDirty: (dirty: boolean) => void;
  onDownload: () => void;
}

export const Viewer = ({ place, entry, writable, line, onDirty, onDownload }: Props) => {
  const [shown, setShown] = useState<Shown | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [dirty, setDirty] = useState(false);
  const [round, setRound] = useState(0);
  const editor = useRef<EditorHandle | null>(null);
  const etag = useRef('');

  useEffect(() => {
    const abort = new AbortController();
    let url = '';
    setError(null);
    look(place, entry, abort.signal).then(
      (found) => {
        if (found.kind === 'image') url = found.url;
        if (found.kind === 'text') etag.current = found.etag;
        if (!abort.signal.aborted) setShown(found);
      },
      (reason) => !isAbort(reason) && setError(reason),
    );
    return () => {
      abort.abort();
      if (url) URL.revokeObjectURL(url);
    };
  }, [round]);

  const change = (now: boolean) => {
    setDirty(now);
    onDirty(now);
  };
  const put = async () => {
    await files.write(place, entry.path_encoded, editor.current!.text());
    etag.current = (await files.currentTag(place, entry.path_encoded)) ?? '';
    editor.current!.saved();
    change(false);
    say(`${files.nameOf(entry)} is saved.`);
  };
  const save = async () => {
    if (!editor.current) return;
    try {
      const now = await files.currentTag(place, entry.path_encoded);
      if (now === null || now === etag.current || !etag.current) return await put();
      ask({
        title: `${files.nameOf(entry)} was changed meanwhile`,
        body: <p>Something in the sandbox wrote to it since it was opened here. Saving now replaces that.</p>,
        action: 'Save mine',
        danger: true,
        work: put,
      });
    } catch (reason) {
      complain(reason, `Saving ${files.nameOf(entry)}`);
    }
  };

  if (error !== null) return <ErrorBox error={error} retry={() => setRound(round + 1)} />;
  if (!shown) return <Loading what={files.nameOf(entry)} />;
  if (shown.kind === 'image')
    return (
      <div class="pane-body viewer-image">
        <img src={shown.url} alt={files.nameOf(entry)} onError={() => setError(new Error('The browser cannot draw this image.'))} />
      </div>
    );
  if (shown.kind === 'binary')
    return (
      <Empty title="This is no text" icon="file">
        <p>
          {shown.type || 'unknown type'}, {bytes(shown.size)}
        </p>
        <p>
          <button type="button" onClick={onDownload}>
            Download
          </button>
        </p>
      </Empty>
    );
  // The editor knows one kind of line end a file.
  const mixed = shown.text.includes('\r') && /(^|[^\r])\n|\r(?!\n)/.test(shown.text);
  const editable = writable && shown.whole && !mixed;
  const actions = document.getElementById('viewer-actions');
  return (
    <>
      {actions && editable &&
        createPortal(
          <WorkButton class={dirty ? 'primary' : ''} disabled={!dirty} onWork={save}>
            Save
          </WorkButton>,
          actions,
        )}
      {!shown.whole && (
        <div class="notice">
          <p>The first {bytes(TEXT_MAX_BYTES)} of {bytes(shown.size)}; download it to see all.</p>
        </div>
      )}
      {writable && mixed && (
        <div class="notice">
          <p>Its lines end in more than one way: it can be read here, not edited.</p>
        </div>
      )}
      <Editor text={shown.text} name={files.nameOf(entry)} readOnly={!editable} line={line} handle={editor} onDirty={change} onSave={() => void save()} />
    </>
  );
};
