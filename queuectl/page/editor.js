// A field for YAML: typed, pasted, or a file that is dropped or chosen. What was typed stays in this tab.
import { html, useRef, useState } from "./lib.js";
import { Failure } from "./parts.js";
import { Problem, send } from "./rest.js";

/** Bytes of YAML that REST takes. */
const MOST = 65_536;

/** The answer of REST to YAML, on request.
 * @param {{name: string, where: string, label: string, button: string, example: string, start?: string, children: (answer: any) => any}} props
 *   `name`: of what was typed; `where`: the path that it is sent to; `start`: on the button that writes the example */
export function Editor({ name, where, label, button, example, start = "Use an example", children }) {
  const kept = `queuectl.${name}`;
  const [text, setText] = useState(sessionStorage.getItem(kept) ?? "");
  const [seen, setSeen] = useState({ text: "", answer: /** @type {any} */ (null), problem: /** @type {Problem | null} */ (null), busy: false });
  const [over, setOver] = useState(false);
  const latest = useRef(0);
  const chosen = useRef(/** @type {HTMLInputElement | null} */ (null));
  const write = (/** @type {string} */ next) => {
    setText(next);
    sessionStorage.setItem(kept, next);
  };
  const open = async (/** @type {File | undefined} */ file) => {
    if (!file) return;
    if (file.size > MOST) return setSeen({ text, answer: null, problem: new Problem(413, `${file.name} has ${file.size} bytes, at most ${MOST} are taken`, { title: "Too large" }), busy: false });
    write(await file.text());
  };
  const ask = async () => {
    const turn = ++latest.current;
    setSeen({ ...seen, busy: true });
    try {
      const answer = await send(where, text, { "Content-Type": "application/yaml" });
      if (turn === latest.current) setSeen({ text, answer, problem: null, busy: false });
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, String(error));
      if (turn === latest.current) setSeen({ text, answer: null, problem, busy: false });
    }
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (text.trim()) ask();
  };
  const drop = (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    setOver(false);
    open(event.dataTransfer?.files[0]);
  };
  const key = (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && submit(event);
  return html`<form class=${`editor ${over ? "over" : ""}`} onSubmit=${submit} onDrop=${drop}
      onDragOver=${(event) => (event.preventDefault(), setOver(true))} onDragLeave=${() => setOver(false)}>
      <label for="yaml">${label}</label>
      <textarea id="yaml" rows="16" spellcheck="false" autocomplete="off" autocapitalize="off" wrap="off" value=${text} maxlength=${MOST}
        placeholder="Paste YAML, or drop a file here" onInput=${(event) => write(event.target.value)} onKeyDown=${key}></textarea>
      <div class="actions">
        <button class="primary" type="submit" disabled=${!text.trim() || seen.busy}>${button}</button>
        <button type="button" onClick=${() => chosen.current?.click()}>Open a file</button>
        ${text.trim() ? html`<button type="button" class="quiet" onClick=${() => write("")}>Clear</button>` : html`<button type="button" class="quiet" onClick=${() => write(example)}>${start}</button>`}
        <input ref=${chosen} type="file" hidden accept=".yaml,.yml,.json" onChange=${(event) => (open(event.target.files[0]), (event.target.value = ""))} />
        <span class="soft wide">Ctrl+Enter tries it. Nothing is written.</span>
      </div>
    </form>
    <div class="answer" aria-live="polite" aria-busy=${seen.busy}>
      ${seen.problem && html`<${Failure} problem=${seen.problem} />`}
      ${!seen.answer && !seen.problem && html`<p class="blank">${seen.busy ? "It is tried…" : "The answer appears here."}</p>`}
      ${seen.answer && html`${seen.text !== text && html`<p class="notice wait">The text was changed since: this is of the one before.</p>`}${children(seen.answer)}`}
    </div>`;
}
