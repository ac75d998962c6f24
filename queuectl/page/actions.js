// Changes of workloads and queues. A dialog says what will happen, as the API server has checked it, before it is confirmed.
import { counted } from "./format.js";
import { html, store, useEffect, useRef, useState, useStore } from "./lib.js";
import { Failure, Marked } from "./parts.js";
import { ask, path, Problem, send } from "./rest.js";

const HEADERS = { "Content-Type": "application/json", "Queuectl-Request": "change" };
const PAUSE = 250;
const PATIENCE = 60_000;
const MOST = 200;

/** What a form of a change has: a value by name. `null`: it is not complete.
 * @typedef {Record<string, string | boolean | null>} Values */
/** One change that a view offers.
 * `noReason`: there is no object left to keep one.
 * @typedef {{verb: string, label: string, title: string, danger?: boolean, noReason?: boolean, values?: Values,
 *   form?: (props: {values: Values, set: (values: Values) => void}) => any,
 *   body?: (values: Values) => Record<string, unknown> | null, line: (values: Values) => string}} Action */

/** What the last change did; null: nothing to tell. */
export const told = store(/** @type {string | null} */ (null));

/** An object to change: its path in REST, and its name where there are several.
 * @typedef {{where: string, name?: string}} Target */

/** Buttons of the changes of one object, or of several.
 * @param {{where?: string, targets?: Target[], actions: Action[], done: () => void, label?: string}} props `where`: the path of the only one */
export function Actions({ where = "", targets = [{ where }], actions, done, label = "Changes" }) {
  const [open, setOpen] = useState(/** @type {{action: Action, targets: Target[]} | null} */ (null));
  return html`<div class="changes" role="group" aria-label=${label}>
    ${actions.map((one) => html`<button type="button" key=${one.verb} aria-haspopup="dialog" onClick=${() => setOpen({ action: one, targets })}>${one.label}</button>`)}
    ${open && html`<${Confirm} key=${open.action.verb} ...${open} close=${() => setOpen(null)} done=${done} />`}
  </div>`;
}

/** @typedef {{answer: any, problem: Problem | null}} Check */

/** The answer of one change, or the problem. One for which the caller asks too soon is asked for again, up to a minute.
 * @param {string} address
 * @param {Record<string, unknown>} body
 * @returns {Promise<Check>} */
async function change(address, body) {
  for (const until = performance.now() + PATIENCE; ; ) {
    try {
      return { answer: await send(address, JSON.stringify(body), HEADERS), problem: null };
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, String(error));
      if (problem.status !== 429 || performance.now() > until) return { answer: null, problem };
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.max(1, problem.retryAfter)));
    }
  }
}

/** The answers so far to dry runs of the change with this body, one after the other; asked again when it changes.
 * @param {string[]} addresses
 * @param {string | null} body as JSON; null: it is not complete
 * @returns {Check[]} */
function useChecks(addresses, body) {
  const where = addresses.join(" ");
  const [seen, setSeen] = useState({ body: /** @type {string | null} */ (null), checks: /** @type {Check[]} */ ([]) });
  useEffect(() => {
    if (body === null) return;
    let over = false;
    const look = async () => {
      /** @type {Check[]} */
      let checks = [];
      for (const address of addresses) {
        checks = [...checks, await change(address, { ...JSON.parse(body), dryRun: true })];
        if (over) return;
        setSeen({ body, checks });
      }
    };
    const timer = setTimeout(look, PAUSE);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [where, body]);
  return seen.body === body ? seen.checks : [];
}

/** @param {{targets: Target[], action: Action, close: () => void, done: () => void}} props */
function Confirm({ targets, action, close, done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const changed = useRef(false);
  const [values, setValues] = useState(action.values ?? {});
  const [reason, setReason] = useState("");
  const [sent, setSent] = useState({ busy: false, made: 0, problem: /** @type {Problem | null} */ (null) });
  const content = action.body ? action.body(values) : {};
  const addresses = targets.map((one) => `${one.where}/${action.verb}`);
  const checks = useChecks(addresses, content && JSON.stringify(content));
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const several = targets.length > 1;
  const refused = sent.problem ?? (several ? null : checks[0]?.problem);
  const loss = checks.some((one) => one.answer?.loss);
  const possible = checks.flatMap(({ answer }, place) => (answer && (answer.before !== answer.after || reason.trim()) ? [place] : []));
  const ready = checks.length === targets.length && possible.length > 0 && !sent.busy && !(several && sent.problem);
  const confirm = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!ready) return;
    const made = [];
    for (const place of possible) {
      setSent({ busy: true, made: made.length, problem: null });
      const evict = checks[place].answer.loss ? { evict: true } : {};
      const { answer, problem } = await change(addresses[place], { ...content, ...(reason.trim() ? { reason: reason.trim() } : {}), ...evict });
      if (problem) {
        const before = several ? `${counted(made.length, "workload")} changed, then ${targets[place].name}: ` : "";
        return setSent({ busy: false, made: made.length, problem: new Problem(problem.status, before + problem.message, { title: problem.title }) });
      }
      made.push(answer);
      changed.current = true;
    }
    told.set(`${action.title}: ${several ? `${counted(made.length, "workload")} of ${targets.length} changed` : made[0].meaning}`);
    dialog.current?.close();
  };
  return html`<dialog ref=${dialog} class="confirm" aria-labelledby="change" onClose=${() => (close(), changed.current && done())}>
    <form onSubmit=${confirm}>
      <h2 id="change">${action.title}</h2>
      ${action.form && html`<div class="inputs">${action.form({ values, set: (next) => (setSent({ busy: false, made: 0, problem: null }), setValues({ ...values, ...next })) })}</div>`}
      <div class="effect" role="status" aria-live="polite">
        ${content === null ? html`<p class="soft">Choose what it is to be: then it is checked what will happen.</p>`
          : refused ? html`<${Failure} problem=${refused} />`
          : checks.length < targets.length ? html`<p class="soft">The API server checks it…${several && ` ${checks.length} of ${targets.length}`}</p>`
          : several && sent.busy ? html`<p class="soft">${counted(sent.made, "workload")} of ${possible.length} changed…</p>`
          : several ? html`<${Effects} targets=${targets} checks=${checks} />` : html`<${Effect} of=${checks[0].answer} />`}
      </div>
      ${!action.noReason && html`<label>Reason <span class="soft">optional, kept on the object with your name</span>
        <input type="text" autocomplete="off" maxlength=${MOST} value=${reason} onInput=${(event) => setReason(event.target.value)} /></label>`}
      <div class="actions">
        <button type="submit" class=${action.danger || loss ? "danger" : "primary"} disabled=${!ready} aria-describedby="change-line">${action.label.replace("…", "")}</button>
        <button type="button" onClick=${() => dialog.current?.close()}>Cancel</button>
      </div>
      <p id="change-line" class="line soft">With the command line: <code>${action.line(values)}</code></p>
    </form>
  </dialog>`;
}

/** What a change means for each of several. */
const Effects = ({ targets, checks }) => html`<ul class="effects" tabindex="0" aria-label="For each of them">${targets.map((one, place) => {
  const { answer, problem } = checks[place];
  return html`<li><b>${one.name}</b> ${problem ? html`<span class="refusal">stays as it is: ${problem.message}</span>` : html`${answer.loss && html`<span class="refusal">${answer.loss}.</span> `}<${Marked} text=${answer.meaning} />`}</li>`;
})}</ul>`;

/** What a change means, before it is made. */
function Effect({ of }) {
  return html`${of.loss && html`<p class="notice bad">${of.loss}.</p>`}
    <p class="meaning"><${Marked} text=${of.meaning} /></p>
    ${of.before !== of.after && [of, ...of.fields].map((one) => html`<${FieldChange} of=${one} />`)}`;
}

const FieldChange = ({ of }) => html`<p class="field-change"><code>${of.field}</code> <span class="soft">${of.before ?? "unset"}</span> <span aria-label="becomes">→</span> <b>${of.after ?? "unset"}</b></p>`;

/** What the last change did, until it is dismissed. */
export function Told() {
  const text = useStore(told);
  return html`<div class="told" role="status" aria-live="polite">${text && html`<p class="notice done"><span><${Marked} text=${text} /></span> <button class="link" onClick=${() => told.set(null)}>Dismiss</button></p>`}</div>`;
}

const named = (of) => `${of.kind.toLowerCase()}/${of.name} -n ${of.namespace}`;

/** The command lines of a change of workloads: one for each namespace.
 * @param {any[]} items
 * @param {string} verb
 * @param {string} [options] */
const lines = (items, verb, options = "") =>
  [...new Set(items.map((one) => one.namespace))].map((namespace) => {
    const names = items.filter((one) => one.namespace === namespace).map((one) => `${one.kind.toLowerCase()}/${one.name}`);
    return `queuectl ${verb} ${names.join(" ")} -n ${namespace}${options}`;
  }).join("\n");

/** The changes that one or several workloads may have.
 * @param {any[]} items
 * @param {string} place their name
 * @returns {Record<string, Action>} */
const changesOf = (items, place) => ({
  hold: { verb: "hold", label: "Hold", title: `Hold ${place}`, line: () => lines(items, "hold") },
  release: { verb: "release", label: "Release", title: `Release ${place}`, line: () => lines(items, "release") },
  priority: {
    verb: "priority", label: "Priority…", title: `Priority of ${place}`, values: { name: "", none: false }, form: ClassField,
    body: (values) => (values.none ? { priorityClass: null } : values.name ? { priorityClass: values.name } : null),
    line: (values) => lines(items, "priority", values.none ? " --unset" : ` --class ${values.name || "NAME"}`),
  },
  cancel: { verb: "cancel", label: "Delete", title: `Delete ${place}`, danger: true, noReason: true, line: () => lines(items, "cancel") },
});

const isOver = (of) => ["Finished", "Deleted"].includes(of.phase);

/** The changes of several workloads at one time.
 * @param {any[]} items
 * @returns {{targets: Target[], actions: Action[]}} */
export function ofWorkloads(items) {
  const open = items.filter((one) => !isOver(one));
  const targets = open.map((one) => ({ where: path("workloads", one.namespace, one.kind, one.name), name: `${one.namespace}/${one.kind.toLowerCase()}/${one.name}` }));
  return { targets, actions: open.length ? Object.values(changesOf(open, counted(open.length, "workload"))) : [] };
}

/** The changes of a workload, in its phase.
 * @param {any} of
 * @returns {Action[]} */
export function ofWorkload(of) {
  if (isOver(of)) return [];
  const place = `${of.kind} ${of.namespace}/${of.name}`;
  const all = changesOf([of], place);
  const hold = of.reason?.code === "OnHold" ? all.release : all.hold;
  const move = {
    verb: "move", label: "Move…", title: `Move ${place}`, values: { queue: "" },
    form: (props) => html`<${QueueField} namespace=${of.namespace} now=${of.queue} ...${props} />`,
    body: (values) => (values.queue ? { queue: values.queue } : null), line: (values) => `queuectl move ${named(of)} --to ${values.queue || "LOCALQUEUE"}`,
  };
  return [hold, ...(of.phase === "Pending" ? [move] : []), all.priority, all.cancel];
}

/** The change of a workload to a size that was tried.
 * @param {any} of
 * @param {{gpus: number | null, pods: number | null, podSet: string | null}} fit
 * @returns {Action} */
export function ofFit(of, { gpus, pods, podSet }) {
  const size = [gpus !== null && counted(gpus, "GPU"), pods !== null && counted(pods, "pod")].filter(Boolean).join(" in ");
  const options = [["--gpus", gpus], ["--pods", pods], ["--podset", podSet]].filter(([, value]) => value !== null);
  return {
    verb: "fit", label: `Fit ${podSet === null ? "" : `${podSet} `}to ${size}`, title: `Fit ${of.kind} ${of.namespace}/${of.name} to ${size}`,
    body: () => ({ gpus, pods, podSet }), line: () => ["queuectl fit", named(of), ...options.flat()].join(" "),
  };
}

/** The changes of a ClusterQueue or LocalQueue.
 * @param {any} queue
 * @returns {Action[]} */
export function ofQueue(queue) {
  const title = queue.namespace ? `LocalQueue ${queue.namespace}/${queue.name}` : `ClusterQueue ${queue.name}`;
  const words = queue.namespace ? `localqueue/${queue.name} -n ${queue.namespace}` : `clusterqueue/${queue.name}`;
  const stop = {
    verb: "stop", label: "Stop…", title: `Stop ${title}`, danger: true, values: { drain: queue.stopPolicy === "HoldAndDrain" },
    form: ({ values, set }) => html`<label class="check"><input type="checkbox" checked=${values.drain} onChange=${(event) => set({ drain: event.target.checked })} /> Evict its admitted workloads too</label>`,
    body: (values) => (values.drain ? { drain: true } : {}), line: (values) => `queuectl stop ${words}${values.drain ? " --drain" : ""}`,
  };
  const resume = { verb: "resume", label: "Resume", title: `Resume ${title}`, line: () => `queuectl resume ${words}` };
  return queue.stopPolicy === "None" ? [stop] : [resume, stop];
}

function QueueField({ namespace, now, values, set }) {
  const [names, setNames] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    ask("localqueues", { namespace, limit: 1000 }).then((page) => setNames(page.items.map((one) => one.name)), () => setNames([]));
  }, [namespace]);
  return html`<label>LocalQueue of namespace ${namespace} <span class="soft">it waits in ${now}</span>
    <select value=${values.queue} onChange=${(event) => set({ queue: event.target.value })}>
      <option value="">Choose one</option>${names.filter((name) => name !== now).map((name) => html`<option value=${name} selected=${name === values.queue}>${name}</option>`)}
    </select></label>`;
}

function ClassField({ values, set }) {
  return html`<label>WorkloadPriorityClass
      <input type="text" autocomplete="off" spellcheck="false" value=${values.name} disabled=${values.none} onInput=${(event) => set({ name: event.target.value.trim() })} /></label>
    <label class="check"><input type="checkbox" checked=${values.none} onChange=${(event) => set({ none: event.target.checked })} /> None: that of its pods counts</label>`;
}
