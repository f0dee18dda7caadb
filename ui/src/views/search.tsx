// Search in the files of one place, by what stands in them or by name.
import { useEffect, useRef, useState } from 'preact/hooks';
import { isAbort } from '../lib/api';
import * as files from '../lib/files';
import { plural, visible } from '../lib/format';
import type { Entry } from '../lib/types';
import { Icon } from '../parts/icons';
import { Empty, ErrorBox, Loading } from '../parts/small';

interface Hit {
  path: string;
  path_encoded: string;
  line?: number;
  text?: string;
}

interface Results {
  hits: Hit[];
  said: string;
}

const asEntry = (hit: Hit): Entry => ({ path: hit.path, path_encoded: hit.path_encoded, kind: 'file', mode: '', size: null, modified_at: null });

export const Search = ({ place, onOpen, onClose }: { place: files.Place; onOpen: (entry: Entry, line?: number) => void; onClose: () => void }) => {
  const [results, setResults] = useState<Results | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [abort, setAbort] = useState<AbortController | null>(null);
  const input = useRef<HTMLInputElement>(null);

  useEffect(() => {
    input.current?.focus();
  }, []);
  useEffect(() => () => abort?.abort(), [abort]);

  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const pattern = String(form.get('pattern'));
    const how = String(form.get('how'));
    const stop = new AbortController();
    setAbort(stop);
    setError(null);
    setResults(null);
    try {
      if (how === 'name') {
        const glob = /[*?[{]/.test(pattern) ? pattern : `*${pattern}*`;
        const found = await files.find(place, glob, stop.signal);
        setResults({ hits: found.entries.filter((entry) => entry.kind === 'file'), said: `${plural(found.entries.length, 'entry', 'entries')}${found.truncated ? ', and more' : ''}` });
      } else {
        const found = await files.search(place, pattern, { regex: how === 'regex', ignore_case: form.has('ignore') }, stop.signal);
        setResults({ hits: found.matches, said: `${plural(found.matches.length, 'match', 'matches')} in ${plural(found.files, 'file')}${found.truncated ? `; ended early (${found.truncated_by})` : ''}` });
      }
    } catch (reason) {
      if (!isAbort(reason)) setError(reason);
    } finally {
      setAbort((now) => (now === stop ? null : now));
    }
  };
  return (
    <>
      <form class="pane-head" onSubmit={submit}>
        <label class="search">
          <span class="unseen">Search for</span>
          <Icon name="search" />
          <input ref={input} name="pattern" type="search" required placeholder="Search for" spellcheck={false} />
        </label>
        <select name="how" aria-label="How to search">
          <option value="text">in files</option>
          <option value="regex">as an expression</option>
          <option value="name">in names</option>
        </select>
        <label class="check">
          <input name="ignore" type="checkbox" defaultChecked /> Any case
        </label>
        {abort ? (
          // Two elements: one that turned into the other under the pointer would send the form off with the same click.
          <button key="cancel" type="button" onClick={() => abort.abort()}>
            Cancel
          </button>
        ) : (
          <button key="search" type="submit">
            Search
          </button>
        )}
        <button type="button" class="bare" aria-label="Close search" onClick={onClose}>
          <Icon name="close" />
        </button>
      </form>
      <div class="pane-body">
        {error !== null && <ErrorBox error={error} />}
        {abort && <Loading what="results" />}
        {results && (
          <p class="loading" role="status">
            {results.said}
          </p>
        )}
        {results && !results.hits.length && (
          <Empty title="Nothing was found" icon="search">
            Binary files are searched up to their first zero byte.
          </Empty>
        )}
        <ul class="results">
          {results?.hits.map((hit, i) => (
            <li key={i}>
              <button type="button" onClick={() => onOpen(asEntry(hit), hit.line)}>
                <span>
                  {visible(hit.path)}
                  {hit.line ? <span class="quiet">:{hit.line}</span> : ''}
                </span>
                {hit.text !== undefined && <span class="mono quiet">{hit.text.trim().slice(0, 300)}</span>}
              </button>
            </li>
          ))}
        </ul>
      </div>
    </>
  );
};
