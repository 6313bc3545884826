import { code } from "./state/code";

import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";
import { viewOf } from "./views";

// Loads the view while the login is read. A failure is ignored here, because the page reports it when it shows the
// view.
viewOf(location.pathname)
  .load()
  .catch(() => undefined);

const target = document.getElementById("app");
if (target) mount(App, { target, props: { code } });
