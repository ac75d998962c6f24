// The token of the caller, if REST asks for one.
import { html, useLayoutEffect, useRef, useState, useStore } from "./lib.js";
import { refused, token } from "./rest.js";

export function SignIn() {
  const problem = useStore(refused);
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [text, setText] = useState("");
  // Before anything else is done: behind an open dialog nothing takes what is typed.
  useLayoutEffect(() => {
    if (problem && !dialog.current?.open) dialog.current?.showModal();
    if (!problem && dialog.current?.open) dialog.current.close();
  }, [problem]);
  const audience = problem?.audiences?.[0] ?? "queuectl";
  const use = (event) => {
    event.preventDefault();
    token.set(text.trim().replace(/^bearer\s+/i, ""));
    setText("");
  };
  return html`<dialog ref=${dialog} class="signin" aria-labelledby="signin">
    <form onSubmit=${use}>
      <h2 id="signin">Sign in</h2>
      <p>REST answers to callers that the cluster knows. Paste a token for the audience <code>${audience}</code>:</p>
      <pre tabindex="0">kubectl create token SERVICEACCOUNT -n NAMESPACE --audience ${audience}</pre>
      <label>Token <input type="password" autocomplete="off" spellcheck="false" required value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      ${token.get() && problem && html`<p class="bad" role="alert">The token was not accepted.</p>`}
      <p class="soft">Only this tab keeps it, and it is sent to this server only. A proxy in front that adds the header Authorization needs none.</p>
      <button class="primary" type="submit">Sign in</button>
    </form>
  </dialog>`;
}
