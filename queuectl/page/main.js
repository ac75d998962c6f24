// The page: navigation, what is above every view, and the view of the address.
import { told, Told } from "./actions.js";
import { html, render, useEffect, useStore } from "./lib.js";
import { Heading } from "./parts.js";
import { route, to } from "./route.js";
import { Notices, ThemeChoice, TopBar } from "./shell.js";
import { SignIn } from "./signin.js";
import { Capacity } from "./views/capacity.js";
import { ClusterQueue } from "./views/clusterqueue.js";
import { Decisions } from "./views/decisions.js";
import { Lending } from "./views/lending.js";
import { LocalQueue } from "./views/localqueue.js";
import { Overview } from "./views/overview.js";
import { Plan } from "./views/plan.js";
import { Preemptions } from "./views/preemptions.js";
import { Quote } from "./views/quote.js";
import { Usage } from "./views/usage.js";
import { Workload } from "./views/workload.js";
import { Workloads } from "./views/workloads.js";

const NAVIGATION = [
  ["", "Overview"],
  ["workloads", "Workloads"],
  ["decisions", "Decisions"],
  ["preemptions", "Preemptions"],
  ["lending", "Lending"],
  ["capacity", "Capacity"],
  ["usage", "Usage"],
  ["quote", "Quote"],
  ["plan", "Plan"],
];

/** @param {import("./route.js").Route} where */
function view({ parts, params }) {
  const [first, ...more] = parts;
  const asOf = params.get("asOf");
  if (first === undefined) return ["Overview", html`<${Overview} asOf=${asOf} />`];
  if (first === "clusterqueues" && more.length === 1) return [more[0], html`<${ClusterQueue} key=${more[0]} name=${more[0]} asOf=${asOf} params=${params} />`];
  if (first === "localqueues" && more.length === 2)
    return [more[1], html`<${LocalQueue} key=${more.join("/")} namespace=${more[0]} name=${more[1]} asOf=${asOf} />`];
  if (first === "workloads" && more.length === 3)
    return [more[2], html`<${Workload} key=${more.join("/")} namespace=${more[0]} kind=${more[1]} name=${more[2]} asOf=${asOf} />`];
  if (first === "workloads" && !more.length) return ["Workloads", html`<${Workloads} params=${params} asOf=${asOf} />`];
  if (!more.length) {
    if (first === "decisions") return ["Decisions", html`<${Decisions} params=${params} />`];
    if (first === "preemptions") return ["Preemptions", html`<${Preemptions} params=${params} asOf=${asOf} />`];
    if (first === "lending") return ["Lending", html`<${Lending} params=${params} asOf=${asOf} />`];
    if (first === "usage") return ["Usage", html`<${Usage} params=${params} />`];
    if (first === "quote") return ["Quote", html`<${Quote} />`];
    if (first === "plan") return ["Plan", html`<${Plan} params=${params} />`];
    if (first === "capacity") return ["Capacity", html`<${Capacity} params=${params} asOf=${asOf} />`];
  }
  return ["Not found", html`<${Heading} title="There is no such page" /><p><a href=${to([])}>Overview</a></p>`];
}

function Page() {
  const where = useStore(route);
  const [title, shown] = view(where);
  const address = where.parts.join("/");
  useEffect(() => {
    document.title = `${title} · queuectl`;
  }, [title]);
  useEffect(() => {
    scrollTo(0, 0);
    document.querySelector("nav.side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    told.set(null);
  }, [address]);
  return html`<a class="skip" href="#title" onClick=${skip}>Skip to content</a>
    <nav class="side" aria-label="Views">
      <a class="brand" href=${to([])}><span class="mark" aria-hidden="true"><i></i><i></i><i></i></span>queuectl</a>
      <ul>${NAVIGATION.map(([name, text]) => html`<li><a href=${to(name ? [name] : [])} aria-current=${current(where.parts, name) ? "page" : undefined}>${text}</a></li>`)}</ul>
      <div class="foot"><a href="docs">REST</a><${ThemeChoice} /></div>
    </nav>
    <div class="main">
      <${TopBar} asOf=${where.params.get("asOf")} />
      <${Notices} asOf=${where.params.get("asOf")} />
      <${Told} />
      <main id="content">${shown}</main>
    </div>
    <${SignIn} />`;
}
/** @param {string[]} parts
 * @param {string} name */
const current = (parts, name) => (parts[0] ?? "") === name;

/** @param {Event} event */
function skip(event) {
  event.preventDefault(); // the hash is the address of the view
  document.getElementById("title")?.focus();
}

const root = document.getElementById("app");
if (root) render(html`<${Page} />`, root);
