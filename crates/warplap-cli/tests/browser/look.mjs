// Opens a report in a headless browser and prints what is drawn on it as JSON: node look.mjs ROOM REPORT.html
// ROOM is the folder the packages were installed into; the browser itself is unpacked there once, by node look.mjs ROOM: one at a time.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import zlib from "node:zlib";

const [room, report] = process.argv.slice(2).map(p => path.resolve(p));
const require = createRequire(path.join(room, "package.json"));
const puppeteer = require("puppeteer-core");

function unpacked() {
  const program = path.join(room, "chromium");
  const packed = name => zlib.brotliDecompressSync(fs.readFileSync(path.join(room, "node_modules/@sparticuz/chromium/bin", name)));
  if (!fs.existsSync(program)) {
    for (const name of ["al2023.tar", "swiftshader.tar"]) {
      fs.writeFileSync(path.join(room, name), packed(name + ".br"));
      execFileSync("tar", ["-xf", name], { cwd: room });
    }
    fs.writeFileSync(program + ".part", packed("chromium.br"), { mode: 0o755 });
    fs.renameSync(program + ".part", program);
  }
  process.env.LD_LIBRARY_PATH = path.join(room, "lib");
  return program;
}

if (!report) {
  unpacked();
  process.exit(0);
}

const executablePath = process.env.WARPLAP_BROWSER || unpacked();
const args = ["--no-sandbox", "--no-zygote", "--single-process", "--in-process-gpu", "--use-gl=angle", "--use-angle=swiftshader", "--disable-dev-shm-usage"];
const browser = await puppeteer.launch({ executablePath, args, headless: "shell" });
const page = await browser.newPage();
const errors = [], requests = [];
page.on("pageerror", e => errors.push(String(e)));
page.on("console", m => m.type() === "error" && errors.push(m.text()));
page.on("request", r => requests.push(r.url()));
await page.goto(pathToFileURL(report).href);

const drawn = await page.evaluate(() => {
  const all = (at, what) => [...document.querySelectorAll(`#${at} ${what}`)];
  const texts = at => all(at, "text").map(e => e.textContent);
  const rows = at => all(at, "tr").slice(1).map(r => [...r.children].map(c => c.textContent));
  const visible = at => document.getElementById(at).getBoundingClientRect().height > 20;
  return {
    title: document.title,
    headline: document.getElementById("headline").textContent,
    lines: [...document.querySelectorAll("#lines li")].map(e => e.textContent),
    effects: [...document.querySelectorAll("#effects figure")].map(e => ({ title: e.querySelector("h3").textContent, values: e.querySelectorAll("rect").length })),
    pair: document.getElementById("pair").textContent,
    ranking: rows("trials"),
    curve: { points: all("curve", "circle").length, failures: all("curve", "line[stroke='var(--bad)']").length, line: all("curve", "path").map(p => p.getAttribute("d"))[0], shown: visible("curve") },
    strips: { texts: texts("strips"), marks: all("strips", "line[stroke='var(--mark)']").length },
    parallel: { lines: all("parallel", "path").length, texts: texts("parallel") },
    roof: { points: all("roof", "circle").length, texts: texts("roof"), words: document.getElementById("roof").textContent },
    rejections: rows("rejections"),
    trials: rows("trials").length,
  };
});
const heat = () => page.evaluate(() => ({
  cells: document.querySelectorAll("#heat rect").length,
  texts: [...document.querySelectorAll("#heat text")].map(e => e.textContent),
}));
drawn.heat = await heat();
// The other way round.
const [across, down] = await page.evaluate(() => ["across", "down"].map(id => document.getElementById(id).value));
await page.select("#across", down);
await page.select("#down", across);
drawn.heat_turned = await heat();
// On a telephone: nothing but figures and tables, which scroll by themselves, is wider than the page.
await page.setViewport({ width: 420, height: 900 });
await page.reload();
drawn.narrow = await page.evaluate(() => document.documentElement.scrollWidth);
if (process.env.WARPLAP_PICTURE) await page.screenshot({ path: process.env.WARPLAP_PICTURE, fullPage: true });
drawn.errors = errors;
drawn.elsewhere = requests.filter(url => !url.startsWith("file:"));
drawn.browser = await browser.version();
await browser.close();
process.stdout.write(JSON.stringify(drawn));
