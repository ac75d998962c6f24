// Changes of workloads and queues. A dialog says what will happen, as the API server has checked it, before it is confirmed.
import { counted } from "./format.js";
import { html, store, useEffect, useRef, useState, useStore } from "./lib.js";
import { Failure } from "./parts.js";
import { ask, Problem, send } from "./rest.js";

const HEADERS = { "Content-Type": "application/json", "Queuectl-Request": "change" };
const PAUSE = 250;
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

/** Text with code between backticks, as the server writes commands.
 * @param {{text: string}} props */
export const Coded = ({ text }) => text.split("`").map((part, place) => (place % 2 ? html`<code>${part}</code>` : part));

/** Buttons of the changes of one object.
 * @param {{where: string, actions: Action[], done: () => void, label?: string}} props `where`: the path of the object in REST */
export function Actions({ where, actions, done, label = "Changes" }) {
  const [open, setOpen] = useState(/** @type {Action | null} */ (null));
  return html`<div class="changes" role="group" aria-label=${label}>
    ${actions.map((one) => html`<button type="button" key=${one.verb} aria-haspopup="dialog" onClick=${() => setOpen(one)}>${one.label}</button>`)}
    ${open && html`<${Confirm} key=${open.verb} where=${where} action=${open} close=${() => setOpen(null)} done=${done} />`}
  </div>`;
}

/** The answer to a dry run of the change with this body, asked again when it changes.
 * @param {string} where
 * @param {string | null} body as JSON; null: it is not complete */
function useCheck(where, body) {
  const [seen, setSeen] = useState({ body: /** @type {string | null} */ (null), answer: /** @type {any} */ (null), problem: /** @type {Problem | null} */ (null) });
  useEffect(() => {
    if (body === null) return;
    let over = false;
    const look = async () => {
      const found = await send(where, JSON.stringify({ ...JSON.parse(body), dryRun: true }), HEADERS).then(
        (answer) => ({ body, answer, problem: null }),
        (error) => ({ body, answer: null, problem: error instanceof Problem ? error : new Problem(0, String(error)) }),
      );
      if (!over) setSeen(found);
    };
    const timer = setTimeout(look, PAUSE);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [where, body]);
  return seen.body === body ? seen : { body, answer: null, problem: null };
}

/** @param {{where: string, action: Action, close: () => void, done: () => void}} props */
function Confirm({ where, action, close, done }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [values, setValues] = useState(action.values ?? {});
  const [reason, setReason] = useState("");
  const [sent, setSent] = useState({ busy: false, problem: /** @type {Problem | null} */ (null) });
  const content = action.body ? action.body(values) : {};
  const address = `${where}/${action.verb}`;
  const { answer, problem } = useCheck(address, content && JSON.stringify(content));
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const refused = sent.problem ?? problem;
  const nothing = answer !== null && answer.before === answer.after && !reason.trim();
  const ready = answer !== null && !problem && !nothing && !sent.busy;
  const confirm = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!ready) return;
    setSent({ busy: true, problem: null });
    const body = { ...content, ...(reason.trim() ? { reason: reason.trim() } : {}), ...(answer.loss ? { evict: true } : {}) };
    try {
      const made = await send(address, JSON.stringify(body), HEADERS);
      told.set(`${action.title}: ${made.meaning}`);
      dialog.current?.close();
      done();
    } catch (error) {
      setSent({ busy: false, problem: error instanceof Problem ? error : new Problem(0, String(error)) });
    }
  };
  return html`<dialog ref=${dialog} class="confirm" aria-labelledby="change" onClose=${close}>
    <form onSubmit=${confirm}>
      <h2 id="change">${action.title}</h2>
      ${action.form && html`<div class="inputs">${action.form({ values, set: (next) => (setSent({ busy: false, problem: null }), setValues({ ...values, ...next })) })}</div>`}
      <div class="effect" role="status" aria-live="polite">
        ${content === null ? html`<p class="soft">Choose what it is to be: then it is checked what will happen.</p>`
          : refused ? html`<${Failure} problem=${refused} />`
          : answer === null ? html`<p class="soft">The API server checks it…</p>` : html`<${Effect} of=${answer} />`}
      </div>
      ${!action.noReason && html`<label>Reason <span class="soft">optional, kept on the object with your name</span>
        <input type="text" autocomplete="off" maxlength=${MOST} value=${reason} onInput=${(event) => setReason(event.target.value)} /></label>`}
      <div class="actions">
        <button type="submit" class=${action.danger || answer?.loss ? "danger" : "primary"} disabled=${!ready} aria-describedby="change-line">${action.label.replace("…", "")}</button>
        <button type="button" onClick=${() => dialog.current?.close()}>Cancel</button>
      </div>
      <p id="change-line" class="line soft">With the command line: <code>${action.line(values)}</code></p>
    </form>
  </dialog>`;
}

/** What a change means, before it is made. */
function Effect({ of }) {
  return html`${of.loss && html`<p class="notice bad">${of.loss}.</p>`}
    <p class="meaning"><${Coded} text=${of.meaning} /></p>
    ${of.before !== of.after && [of, ...of.fields].map((one) => html`<${FieldChange} of=${one} />`)}`;
}

const FieldChange = ({ of }) => html`<p class="field-change"><code>${of.field}</code> <span class="soft">${of.before ?? "unset"}</span> <span aria-label="becomes">→</span> <b>${of.after ?? "unset"}</b></p>`;

/** What the last change did, until it is dismissed. */
export function Told() {
  const text = useStore(told);
  return html`<div class="told" role="status" aria-live="polite">${text && html`<p class="notice done"><span><${Coded} text=${text} /></span> <button class="link" onClick=${() => told.set(null)}>Dismiss</button></p>`}</div>`;
}

const named = (of) => `${of.kind.toLowerCase()}/${of.name} -n ${of.namespace}`;

/** The changes of a workload, in its phase.
 * @param {any} of
 * @returns {Action[]} */
export function ofWorkload(of) {
  if (["Finished", "Deleted"].includes(of.phase)) return [];
  const place = `${of.kind} ${of.namespace}/${of.name}`;
  const hold = of.reason?.code === "OnHold"
    ? { verb: "release", label: "Release", title: `Release ${place}`, line: () => `queuectl release ${named(of)}` }
    : { verb: "hold", label: "Hold", title: `Hold ${place}`, line: () => `queuectl hold ${named(of)}` };
  const move = {
    verb: "move", label: "Move…", title: `Move ${place}`, values: { queue: "" },
    form: (props) => html`<${QueueField} namespace=${of.namespace} now=${of.queue} ...${props} />`,
    body: (values) => (values.queue ? { queue: values.queue } : null), line: (values) => `queuectl move ${named(of)} --to ${values.queue || "LOCALQUEUE"}`,
  };
  const priority = {
    verb: "priority", label: "Priority…", title: `Priority of ${place}`, values: { name: "", none: false }, form: ClassField,
    body: (values) => (values.none ? { priorityClass: null } : values.name ? { priorityClass: values.name } : null),
    line: (values) => `queuectl priority ${named(of)} ${values.none ? "--unset" : `--class ${values.name || "NAME"}`}`,
  };
  const cancel = { verb: "cancel", label: "Delete", title: `Delete ${place}`, danger: true, noReason: true, line: () => `queuectl cancel ${named(of)}` };
  return of.phase === "Pending" ? [hold, move, priority, cancel] : [hold, priority, cancel];
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
