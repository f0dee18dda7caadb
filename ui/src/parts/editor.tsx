// Text with highlighting, to read and to edit: CodeMirror in a shadow root, where it adopts its style sheets instead of writing <style>.
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { bracketMatching, foldGutter, HighlightStyle, indentOnInput, type LanguageSupport, StreamLanguage, type StreamParser, syntaxHighlighting } from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import type { RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { dark } from '../lib/theme';

export interface EditorHandle {
  text: () => string;
  // What stands there now is what is on the disk.
  saved: () => void;
}

interface Props {
  text: string;
  name: string;
  readOnly: boolean;
  line?: number;
  handle: RefObject<EditorHandle>;
  onDirty: (dirty: boolean) => void;
  onSave: () => void;
}

const stream = async <S,>(load: Promise<StreamParser<S>>): Promise<StreamLanguage<S>> => StreamLanguage.define(await load);

// Each is fetched when a file of its kind is opened.
const LANGUAGES: [RegExp, () => Promise<LanguageSupport | StreamLanguage<unknown>>][] = [
  [/\.pyw?$/i, async () => (await import('@codemirror/lang-python')).python()],
  [/\.(m?[jt]sx?|cjs|cts)$/i, async () => (await import('@codemirror/lang-javascript')).javascript({ jsx: true, typescript: true })],
  [/\.(json|ipynb|webmanifest)$/i, async () => (await import('@codemirror/lang-json')).json()],
  [/\.(md|markdown)$/i, async () => (await import('@codemirror/lang-markdown')).markdown()],
  [/\.(html?|xhtml|vue|svelte)$/i, async () => (await import('@codemirror/lang-html')).html()],
  [/\.css$/i, async () => (await import('@codemirror/lang-css')).css()],
  [/(\.(sh|bash|zsh|profile)|^\.?(bashrc|profile|zshrc))$/i, async () => stream(import('@codemirror/legacy-modes/mode/shell').then((m) => m.shell))],
  [/\.(c|h)$/i, async () => stream(import('@codemirror/legacy-modes/mode/clike').then((m) => m.c))],
  [/\.(cc|cpp|cxx|hh|hpp)$/i, async () => stream(import('@codemirror/legacy-modes/mode/clike').then((m) => m.cpp))],
  [/\.java$/i, async () => stream(import('@codemirror/legacy-modes/mode/clike').then((m) => m.java))],
  [/\.go$/i, async () => stream(import('@codemirror/legacy-modes/mode/go').then((m) => m.go))],
  [/\.rs$/i, async () => stream(import('@codemirror/legacy-modes/mode/rust').then((m) => m.rust))],
  [/\.ya?ml$/i, async () => stream(import('@codemirror/legacy-modes/mode/yaml').then((m) => m.yaml))],
  [/\.toml$/i, async () => stream(import('@codemirror/legacy-modes/mode/toml').then((m) => m.toml))],
  [/\.(ini|cfg|conf|properties|env)$/i, async () => stream(import('@codemirror/legacy-modes/mode/properties').then((m) => m.properties))],
  [/\.sql$/i, async () => stream(import('@codemirror/legacy-modes/mode/sql').then((m) => m.standardSQL))],
  [/\.(xml|svg|xsd|xsl)$/i, async () => stream(import('@codemirror/legacy-modes/mode/xml').then((m) => m.xml))],
  [/\.(diff|patch)$/i, async () => stream(import('@codemirror/legacy-modes/mode/diff').then((m) => m.diff))],
  [/\.rb$/i, async () => stream(import('@codemirror/legacy-modes/mode/ruby').then((m) => m.ruby))],
  [/\.r$/i, async () => stream(import('@codemirror/legacy-modes/mode/r').then((m) => m.r))],
  [/^(Dockerfile|Containerfile)/i, async () => stream(import('@codemirror/legacy-modes/mode/dockerfile').then((m) => m.dockerFile))],
];

const lightStyle = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: '#7a1fa2' },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: '#8f3b00' },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: '#0b5cad' },
  { tag: [tags.comment, tags.meta], color: '#5a6570', fontStyle: 'italic' },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], color: '#0b6478' },
  { tag: [tags.typeName, tags.className, tags.namespace], color: '#1a6b3c' },
  { tag: [tags.propertyName, tags.attributeName, tags.definition(tags.variableName)], color: '#2b3f8f' },
  { tag: [tags.tagName, tags.heading], color: '#a1260d', fontWeight: '600' },
  { tag: tags.link, textDecoration: 'underline' },
  { tag: tags.strong, fontWeight: '700' },
  { tag: tags.emphasis, fontStyle: 'italic' },
]);

const darkStyle = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: '#8ab8ff' },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: '#9fd78f' },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: '#f0b67f' },
  { tag: [tags.comment, tags.meta], color: '#8f9ba7', fontStyle: 'italic' },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName)], color: '#7fd6e4' },
  { tag: [tags.typeName, tags.className, tags.namespace], color: '#e3c078' },
  { tag: [tags.propertyName, tags.attributeName, tags.definition(tags.variableName)], color: '#d6b3f0' },
  { tag: [tags.tagName, tags.heading], color: '#ff9d94', fontWeight: '600' },
  { tag: tags.link, textDecoration: 'underline' },
  { tag: tags.strong, fontWeight: '700' },
  { tag: tags.emphasis, fontStyle: 'italic' },
]);

const look = (isDark: boolean) => [
  EditorView.theme(
    {
      '&': { height: '100%', fontSize: '13px', backgroundColor: 'var(--panel)', color: 'var(--text)' },
      '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55' },
      '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--quiet)', border: 'none' },
      '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: isDark ? '#ffffff0d' : '#0b64780d' },
      '&.cm-focused': { outline: 'none' },
      '.cm-cursor': { borderLeftColor: 'var(--accent)' },
      '.cm-panels': { backgroundColor: 'var(--bg)', color: 'var(--text)' },
    },
    { dark: isDark },
  ),
  syntaxHighlighting(isDark ? darkStyle : lightStyle),
];

export const Editor = ({ text, name, readOnly, line, handle, onDirty, onSave }: Props) => {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const callbacks = useRef({ onDirty, onSave });
  callbacks.current = { onDirty, onSave };
  const colours = useRef(new Compartment());

  useEffect(() => {
    const root = host.current!.shadowRoot ?? host.current!.attachShadow({ mode: 'open' });
    const language = new Compartment();
    // Line ends as they were: what is not edited must not change.
    const separator = /\r\n/.test(text) && !/[^\r]\n/.test(text) ? '\r\n' : '\n';
    let stored = EditorState.create({ doc: text }).doc;
    let dirty = false;
    const judge = (editor: EditorView) => {
      const now = !editor.state.doc.eq(stored);
      if (now !== dirty) callbacks.current.onDirty((dirty = now));
    };
    const made = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          foldGutter(),
          history(),
          highlightSpecialChars(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          highlightActiveLine(),
          highlightSelectionMatches(),
          search({ top: true }),
          // Escape, then Tab, leaves the editor: CodeMirror's own rule.
          keymap.of([{ key: 'Mod-s', run: () => (callbacks.current.onSave(), true), preventDefault: true }, ...defaultKeymap, ...historyKeymap, ...searchKeymap, ...(readOnly ? [] : [indentWithTab])]),
          EditorState.readOnly.of(readOnly),
          EditorView.contentAttributes.of({ tabindex: '0', 'aria-label': readOnly ? name : `${name}, editor. Escape then Tab leaves it.` }),
          EditorView.updateListener.of((update) => update.docChanged && judge(update.view)),
          language.of([]),
          colours.current.of(look(dark.value)),
        ],
      }),
    });
    view.current = made;
    handle.current = {
      text: () => (separator === '\n' ? made.state.doc.toString() : made.state.sliceDoc().replace(/\n/g, separator)),
      saved: () => {
        stored = made.state.doc;
        judge(made);
      },
    };
    const known = LANGUAGES.find(([pattern]) => pattern.test(name));
    if (known) known[1]().then((support) => made.dispatch({ effects: language.reconfigure(support) }), () => undefined);
    if (line !== undefined && line <= made.state.doc.lines) {
      const at = made.state.doc.line(line);
      made.dispatch({ selection: { anchor: at.from }, effects: EditorView.scrollIntoView(at.from, { y: 'center' }) });
    }
    return () => {
      handle.current = null;
      made.destroy();
    };
  }, []);
  const isDark = dark.value;
  useEffect(() => {
    view.current?.dispatch({ effects: colours.current.reconfigure(look(isDark)) });
  }, [isDark]);
  return <div class="editor" ref={host} />;
};
