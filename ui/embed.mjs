// Turn what Vite built into one C file: embed.mjs OUT (a path as the assembler will find it). Text is carried plain, gzip and brotli.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

const TYPES = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};
const out = process.argv[2];
const names = readdirSync(out).filter((name) => /\.(html|js|css|svg)$/.test(name)).sort();

// The bytes as an object of their own, between two marks.
const incbin = (symbol, path) =>
  `__asm__(".section .rodata\\n.balign 16\\n${symbol}:\\n.incbin \\"${path}\\"\\n${symbol}_end:\\n.byte 0\\n.previous\\n");\n` +
  `extern const char ${symbol}[] __attribute__((visibility("hidden")));\n`;

let code = '/* Made by ui/embed.mjs. */\n#include "wire_ui.h"\n\n';
let table = '';
names.forEach((name, i) => {
  const plain = readFileSync(`${out}/${name}`);
  const forms = {
    plain,
    gzip: gzipSync(plain, { level: 9 }),
    brotli: brotliCompressSync(plain, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: plain.length } }),
  };
  const members = Object.entries(forms).filter(([form, bytes]) => form === 'plain' || bytes.length < plain.length).map(([form, bytes]) => {
    const path = form === 'plain' ? `${out}/${name}` : `${out}/${name}.${form}`;
    if (form !== 'plain') writeFileSync(path, bytes);
    code += incbin(`ui_file_${i}_${form}`, path);
    return `.${form} = {ui_file_${i}_${form}, ${bytes.length}}`;
  });
  const digest = createHash('sha256').update(plain).digest('hex').slice(0, 32);
  table += `    {.name = "${name}", .type = "${TYPES[name.split('.').pop()]}", .digest = "${digest}", ` +
    `.is_hashed = ${name !== 'index.html'}, ${members.join(', ')}},\n`;
});
process.stdout.write(`${code}\nconst struct wire_ui_file wire_ui_files[] = {\n${table}};\nconst size_t wire_ui_file_count = ${names.length};\n`);
