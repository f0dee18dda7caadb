// Files of a session or of a stored workspace. Paths are the wire's `path_encoded`, so that every name is within reach.
import { ApiError, currentToken, request } from './api';
import { policy } from './state';
import type { Entry, Found, Searched } from './types';

export type Kind = 'sessions' | 'workspaces';

export interface Place {
  kind: Kind;
  id: string;
}

export const LIST_MAX = 5000;

const base = (place: Place): string => `/${place.kind}/${encodeURIComponent(place.id)}`;
const at = (path: string): string => (path ? `path=${path}` : '');

export const nameOf = (entry: { path: string }): string => entry.path.slice(entry.path.lastIndexOf('/') + 1);
// The folder that holds it, "" for the root; of encoded and plain paths alike.
export const parentOf = (path: string): string => path.slice(0, Math.max(0, path.lastIndexOf('/')));
export const encodePath = (path: string): string => path.split('/').map(encodeURIComponent).join('/');
export const join = (folder: string, name: string): string => (folder ? `${folder}/${name}` : name);

export async function list(place: Place, folder: string, signal?: AbortSignal): Promise<Found> {
  const answer = await request(`${base(place)}/find`, { query: { depth: 1, limit: LIST_MAX }, rawQuery: at(folder), signal });
  const found: Found = await answer.json();
  const order = (entry: Entry): string => (entry.kind === 'directory' ? '0' : '1') + nameOf(entry).toLowerCase();
  found.entries.sort((a, b) => (order(a) < order(b) ? -1 : 1));
  return found;
}

export async function search(place: Place, pattern: string, options: { regex: boolean; ignore_case: boolean }, signal: AbortSignal): Promise<Searched> {
  return (await request(`${base(place)}/search`, { query: { pattern, ...options, limit: 500, seconds: 15 }, signal })).json();
}

export async function find(place: Place, glob: string, signal: AbortSignal): Promise<Found> {
  return (await request(`${base(place)}/find`, { query: { glob, limit: 500 }, signal })).json();
}

export interface Content {
  type: string;
  etag: string;
  size: number;
  bytes: Uint8Array<ArrayBuffer>;
}

// The first `most` bytes of a file.
export async function read(place: Place, path: string, size: number | null, most: number, signal: AbortSignal): Promise<Content> {
  const ask = (headers: Record<string, string>) => request(`${base(place)}/content`, { rawQuery: at(path), headers, signal });
  // An empty file has no range.
  const answer = size === 0 ? await ask({}) : await ask({ Range: `bytes=0-${most - 1}` }).catch((error) => (error instanceof ApiError && error.status === 416 ? ask({}) : Promise.reject(error)));
  const total = /\/(\d+)$/.exec(answer.headers.get('Content-Range') ?? '')?.[1] ?? answer.headers.get('Content-Length');
  const bytes = new Uint8Array(await answer.arrayBuffer());
  return { type: answer.headers.get('Content-Type') ?? '', etag: answer.headers.get('ETag') ?? '', size: Number(total ?? bytes.length), bytes };
}

// What the file is now; null: it is gone.
export async function currentTag(place: Place, path: string): Promise<string | null> {
  try {
    const answer = await request(`${base(place)}/content`, { rawQuery: at(path), headers: { Range: 'bytes=0-0' } });
    return answer.headers.get('ETag');
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    // An empty file has no first byte.
    if (error instanceof ApiError && error.status === 416) return (await request(`${base(place)}/content`, { rawQuery: at(path) })).headers.get('ETag');
    throw error;
  }
}

// By XMLHttpRequest, which alone tells how far an upload is.
export function write(place: Place, path: string, body: Blob | string, signal?: AbortSignal, progress?: (done: number, total: number | null) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest();
    call.open('PUT', `${base(place)}/content?${at(path)}`);
    call.setRequestHeader('X-Sandbox-Token', currentToken());
    call.setRequestHeader('Content-Type', 'application/octet-stream');
    call.upload.onprogress = (event) => progress?.(event.loaded, event.lengthComputable ? event.total : null);
    call.onload = () => {
      if (call.status < 300) return resolve();
      let text = call.statusText;
      try {
        text = String(JSON.parse(call.responseText).detail);
      } catch {
        // The status has to do.
      }
      reject(new ApiError(call.status, text));
    };
    // Refused in the middle, the broker answers and closes: the browser may see only that.
    call.onerror = () => reject(new ApiError(0, 'The upload broke off. It may be larger than the broker takes, or the connection ended.'));
    call.onabort = () => reject(new DOMException('cancelled', 'AbortError'));
    signal?.addEventListener('abort', () => call.abort(), { once: true });
    call.send(typeof body === 'string' ? new Blob([body]) : body);
  });
}

export async function remove(place: Place, path: string): Promise<void> {
  await request(`${base(place)}/content`, { method: 'DELETE', rawQuery: at(path) });
}

export async function move(place: Place, from: string, to: string): Promise<void> {
  await request(`${base(place)}/move`, { method: 'POST', rawQuery: `from=${from}&to=${to}` });
}

export async function makeFolder(place: Place, path: string): Promise<void> {
  await request(`${base(place)}/files/mkdir`, { method: 'POST', json: { path: `${policy.value?.work_dir ?? '/workspace'}/${path}` } });
}

export const watchAddress = (place: Place): string => `${base(place)}/watch`;

function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

// To the reader's own disk. The bytes go through the browser, which keeps large ones on its disk: the token cannot be in an address.
export async function download(place: Place, path: string, name: string, folder: boolean, signal: AbortSignal, progress: (done: number, total: number | null) => void): Promise<void> {
  const answer = await request(`${base(place)}/${folder ? 'archive' : 'content'}`, { query: folder ? { format: 'zip' } : {}, rawQuery: at(path), signal });
  const total = Number(answer.headers.get('Content-Length')) || null;
  let done = 0;
  const counted = answer.body!.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        done += chunk.length;
        progress(done, total);
        controller.enqueue(chunk);
      },
    }),
  );
  save(await new Response(counted, { headers: { 'Content-Type': 'application/octet-stream' } }).blob(), folder ? `${name}.zip` : name);
}
