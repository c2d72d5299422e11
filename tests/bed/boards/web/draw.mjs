// node draw.mjs MODULES OUT FILE...: draws each board of FILEs into OUT/<uid>.png.
//
// MODULES is the folder that `npm ci` filled. Each FILE has a board, its panels' answers and its time range, as
// tests/bed/boards/__main__.py writes them. Ends with 1 where a panel could not be drawn.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const [modules, out, ...files] = process.argv.slice(2);
const require = createRequire(path.resolve(modules, 'package.json'));
const { build } = require('esbuild');
const { chromium } = require('playwright-core');

const WIDTH = 1600;
const PATIENCE = 240_000; // a machine under load draws slowly
const ADDRESS = 'http://board.invalid/';
const PAGE = '<!doctype html><html><body style="margin:0"><div id="board"></div></body></html>';
const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(fs.existsSync);
// What a browser says of its own accord, whatever it shows.
const QUIET = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Bundle src/ with Grafana's components; their CommonJS builds, which import nothing by half a path. */
async function bundle() {
  const grafana = {
    name: 'grafana',
    setup(setup) {
      setup.onResolve({ filter: /^@grafana\/\w+(\/unstable)?$/ }, ({ path: name }) => {
        const [, scope, entry = 'index'] = name.split('/');
        const file = path.resolve(modules, 'node_modules/@grafana', scope, 'dist/cjs', `${entry}.cjs`);
        return fs.existsSync(file) ? { path: file } : undefined;
      });
    },
  };
  const outfile = path.resolve(modules, 'board.js');
  await build({
    entryPoints: [fileURLToPath(new URL('src/page.jsx', import.meta.url))],
    nodePaths: [path.resolve(modules, 'node_modules')],
    bundle: true,
    minify: true,
    outfile,
    format: 'iife',
    jsx: 'automatic',
    define: { 'process.env.NODE_ENV': '"production"', 'process.env': '{}', global: 'window' },
    loader: { '.svg': 'text', '.woff2': 'dataurl', '.ttf': 'dataurl', '.png': 'dataurl' },
    mainFields: ['browser', 'module', 'main'],
    plugins: [grafana],
    logLevel: 'error',
  });
  return outfile;
}

const script = await bundle();
const styles = script.replace(/js$/, 'css');
const browser = await chromium.launch({ executablePath: CHROMIUM, args: QUIET });
const page = await browser.newPage({ viewport: { width: WIDTH, height: 1000 } });
const faults = [];
page.on('pageerror', (error) => faults.push(String(error.stack ?? error)));
page.on('console', (message) => message.text().startsWith('panel:') && faults.push(message.text()));
// From an address of its own, which nobody is asked for: components keep settings by their page's origin.
await page.route(ADDRESS, (route) => route.fulfill({ contentType: 'text/html', body: PAGE }));
await page.goto(ADDRESS);
if (fs.existsSync(styles)) await page.addStyleTag({ path: styles });
await page.addScriptTag({ path: script });
for (const file of files) {
  const { board, ...rest } = JSON.parse(fs.readFileSync(file, 'utf8'));
  const height = await page.evaluate((given) => window.draw(given), { board, ...rest });
  await page.setViewportSize({ width: WIDTH, height }); // what is not in sight is not drawn
  await page.evaluate(() => window.still());
  await page.locator('#board').screenshot({ path: path.join(out, `${board.uid}.png`), timeout: PATIENCE });
  for (const fault of faults.splice(0)) {
    process.exitCode = 1;
    console.error(`${board.uid}: ${fault}`.slice(0, 1500));
  }
}
await browser.close();
