import { code } from "./state/code";

import { mount } from "svelte";

import App from "./App.svelte";
import "./app.css";
import { viewOf } from "./views";

// The view is loaded while the login is read. The page reports a failure when it shows the view.
viewOf(location.pathname)
  .load()
  .catch(() => undefined);

const target = document.getElementById("app");
if (target) mount(App, { target, props: { code } });
